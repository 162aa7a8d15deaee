"""Draw mini-batches and random shifts of images on the host, one epoch at a time.  Runs can resume within an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, to_library
from minintk.validate import check_generator, whole


@dataclass(frozen=True)
class Shift:
    """Shift each image by a random (dy, dx), uniform on {-pixels, ..., pixels}^2, and fill the gaps with `fill`.

    x : (N, H, W, C).  fill : the value of the background, e.g. 0 for images that were not standardised.
    Samarin et al. 2022 shift MNIST images by up to 7 pixels, a quarter of their width.

    >>> x = np.arange(1.0, 10.0).reshape(1, 3, 3, 1)
    >>> Shift(1)(x, np.array([[1, -1]]))[0, :, :, 0]
    array([[0., 0., 0.],
           [2., 3., 0.],
           [5., 6., 0.]])
    """

    pixels: int
    fill: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "pixels", whole("Shift(pixels=...)", self.pixels, 0))
        if not np.isfinite(self.fill):
            raise ValueError(f"Shift(fill=...) expects a finite number, got {self.fill!r}")

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError unless examples of this shape can be shifted."""
        if len(shape) != 3:
            raise ValueError(f"Shift moves images x : (N, H, W, C), got examples {shape}: see Dataset.images()")
        if self.pixels >= min(shape[:2]):
            raise ValueError(f"Shift(pixels={self.pixels}) moves images of shape {shape} out of sight: take fewer")

    def draw(self, N: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """Return random integer shifts (dy, dx) of N images, (N, 2).  `Dataset.shifted` uses the same method."""
        return rng.integers(-self.pixels, self.pixels, size=(2, N), endpoint=True).T

    def __call__(self, x: Array, draws: Array) -> Array:
        """Return x[n, i - dy_n, j - dx_n], with `fill` outside the image.  draws : (N, 2), all (dy_n, dx_n)."""
        self.check(tuple(x.shape[1:]))
        xp, s = array_namespace(x), self.pixels
        N, H, W, C = x.shape
        padded = xp.full((N, H + 2 * s, W + 2 * s, C), float(self.fill), dtype=x.dtype)
        padded[:, s : s + H, s : s + W] = x
        rows, columns = ((s - draws[:, i])[:, None] + xp.arange(size)[None, :] for i, size in ((0, H), (1, W)))
        return padded[xp.arange(N)[:, None, None], rows[:, :, None], columns[:, None, :]]


class Batches:
    """The examples (x, y) of each step: all N, or a mini-batch.  An epoch contains each example at most once.

    An epoch has `per_epoch` = floor(N / batch_size) steps, and omits the last N mod batch_size examples of the shuffled
    order.  `restore` resumes within an epoch.  Invalid arguments raise ValueError or TypeError.
    """

    def __init__(
        self, x: Array, y: Array, batch_size: int | None, rng: np.random.Generator | None, augment: Shift | None
    ) -> None:
        if batch_size is not None:
            batch_size = whole("batch_size", batch_size, high=x.shape[0])
        if augment is not None:
            if not isinstance(augment, Shift):
                raise TypeError(f"augment expects mn.Shift(...), got {augment!r}")
            augment.check(tuple(x.shape[1:]))
        if batch_size is not None or augment is not None:
            check_generator("rng, of mini-batches and augmentation,", rng)
        self.x, self.y, self.batch_size, self.augment = x, y, batch_size, augment
        self.rng = rng if batch_size is not None or augment is not None else None
        self.size = x.shape[0] if batch_size is None else batch_size
        self.per_epoch = x.shape[0] // self.size
        self._epoch: dict[str, Any] | None = None  # the generator's state before it drew this epoch
        self._order: Array | None = None
        self._draws: Array | None = None

    def state(self, step: int) -> dict[str, Any] | None:
        """Return the generator's state before the epoch of step `step` is drawn, or None if nothing is random."""
        if self.rng is None:
            return None
        return dict(self.rng.bit_generator.state) if step % self.per_epoch == 0 else self._epoch

    def restore(self, state: dict[str, Any] | None) -> None:
        """Reset the generator to a result of `state(step)`, so that the epoch of the next step is drawn again."""
        if self.rng is not None and state is not None:
            self.rng.bit_generator.state = state
            self._epoch = state

    def __call__(self, step: int) -> tuple[Array, Array]:
        """Return x : (B, *input_shape) and y : (B, C) of a step with B examples.  Steps must be requested in order."""
        if self.rng is None:
            return self.x, self.y
        place = step % self.per_epoch
        if place == 0 or (self._order is None and self._draws is None):
            self._shuffle(self.rng)
        xp = array_namespace(self.x)
        x, y, draws = self.x, self.y, self._draws
        if self._order is not None:
            batch = self._order[place * self.size : (place + 1) * self.size]
            x, y = xp.take(x, batch, axis=0), xp.take(y, batch, axis=0)
            draws = None if draws is None else xp.take(draws, batch, axis=0)
        if self.augment is not None:
            assert draws is not None
            x = self.augment(x, draws)
        return x, y

    def _shuffle(self, rng: np.random.Generator) -> None:
        """Draw the order of the examples if there are mini-batches, and their shifts if `augment`, for one epoch."""
        xp, N = array_namespace(self.x), self.x.shape[0]
        self._epoch = dict(rng.bit_generator.state)
        if self.batch_size is not None:
            self._order = to_library(rng.permutation(N), xp)
        if self.augment is not None:
            self._draws = to_library(self.augment.draw(N, rng), xp)
