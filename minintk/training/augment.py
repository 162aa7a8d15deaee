"""Augmentation: images shifted by whole pixels, with new shifts in every epoch.

Drawing and applying are separate: `draw` uses the generator once per epoch, the call changes a batch.  So a run can be
resumed at any step, and NumPy and CuPy use the same draws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace
from minintk.validate import whole


class Augmentation(ABC):
    """Base class.  To add an augmentation, subclass it as a frozen dataclass with `draw` and `__call__`."""

    __slots__ = ()

    @abstractmethod
    def draw(self, N: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """The random parameters of N examples, (N, ...)."""

    @abstractmethod
    def __call__(self, x: Array, draws: Array) -> Array:
        """The augmented examples, a new array with the shape and dtype of x."""

    def check(self, shape: tuple[int, ...]) -> None:
        """ValueError unless examples of this shape can be augmented."""
        return


@dataclass(frozen=True)
class Shift(Augmentation):
    """Shift every image by its own (dy, dx), uniform on {-pixels, ..., pixels}^2, filling in `fill`.

    x : (N, H, W, C).  fill : the value of the background; 0, unless the images were standardised.
    Samarin et al. 2020 shift MNIST by up to 7 pixels, a quarter of the image.

    >>> x = np.arange(1.0, 10.0).reshape(1, 3, 3, 1)
    >>> Shift(1)(x, (1, -1))[0, :, :, 0]
    array([[0., 0., 0.],
           [2., 3., 0.],
           [5., 6., 0.]])

    To evaluate a test set at every position, take the shifts one at a time:

    >>> len(list(Shift(7).every()))
    225
    """

    pixels: int
    fill: float = 0.0

    def __post_init__(self) -> None:
        whole("Shift(pixels=...)", self.pixels, 0)
        if not np.isfinite(self.fill):
            raise ValueError(f"Shift(fill=...) expects a finite number, got {self.fill!r}")

    def check(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 3:
            raise ValueError(f"Shift moves images x : (N, H, W, C), got examples {shape}: see Dataset.images()")
        if self.pixels >= min(shape[:2]):
            raise ValueError(f"Shift(pixels={self.pixels}) moves images of shape {shape} out of sight: take fewer")

    def every(self) -> Iterable[tuple[int, int]]:
        """All shifts (dy, dx), row by row."""
        span = range(-self.pixels, self.pixels + 1)
        return product(span, span)

    def draw(self, N: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """(N, 2) whole numbers, the (dy, dx) of each image, drawn as in `Dataset.shifted`."""
        return rng.integers(-self.pixels, self.pixels, size=(2, N), endpoint=True).T

    def __call__(self, x: Array, draws: Array | tuple[int, int]) -> Array:
        """x[n, i - dy_n, j - dx_n], `fill` outside.  draws : (N, 2), or one (dy, dx) for all images."""
        self.check(tuple(x.shape[1:]))
        xp, s = array_namespace(x), int(self.pixels)
        N, H, W, C = x.shape
        if isinstance(draws, tuple) and max(map(abs, draws)) > s:
            raise ValueError(f"Shift(pixels={s}) expects shifts up to {s} pixels, got {draws}")
        padded = xp.full((N, H + 2 * s, W + 2 * s, C), float(self.fill), dtype=x.dtype)
        padded[:, s : s + H, s : s + W] = x
        if isinstance(draws, tuple):
            dy, dx = draws
            return xp.asarray(padded[:, s - dy : s - dy + H, s - dx : s - dx + W], copy=True)
        rows, columns = ((s - draws[:, i])[:, None] + xp.arange(size)[None, :] for i, size in ((0, H), (1, W)))
        return padded[xp.arange(N)[:, None, None], rows[:, :, None], columns[:, None, :]]
