"""Batches: the examples of each step, drawn so that a run can be resumed at any step."""

from __future__ import annotations

from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, to_library
from minintk.training.augment import Augmentation


class Batches:
    """(x, y) of step 0, 1, ...: all examples, or mini-batches without replacement, epoch by epoch.

    An epoch is `per_epoch` = floor(N / batch_size) steps; it skips the last N mod batch_size examples of its shuffle.
    Everything random about an epoch is drawn when it starts, so the generator's state at that moment and the step
    suffice to resume.
    """

    def __init__(
        self, x: Array, y: Array, batch_size: int | None, rng: np.random.Generator | None, augment: Augmentation | None
    ) -> None:
        self.x, self.y, self.batch_size, self.augment = x, y, batch_size, augment
        self.rng = rng if batch_size is not None or augment is not None else None
        self.size = x.shape[0] if batch_size is None else batch_size
        self.per_epoch = x.shape[0] // self.size
        self._epoch: dict[str, Any] | None = None  # the generator's state when this epoch was drawn
        self._order: Array | None = None
        self._draws: Array | None = None

    def state(self, step: int) -> dict[str, Any] | None:
        """The generator's state just before the epoch of `step`, the next one, was drawn; None if nothing is random."""
        if self.rng is None:
            return None
        return dict(self.rng.bit_generator.state) if step % self.per_epoch == 0 else self._epoch

    def restore(self, state: dict[str, Any] | None) -> None:
        """Reset the generator to `state`; the next call draws its epoch again."""
        if self.rng is not None and state is not None:
            self.rng.bit_generator.state = state
            self._epoch = state

    def __call__(self, step: int) -> tuple[Array, Array]:
        """x : (B, *shape) and y : (B, C) of a step; steps must be asked for in order."""
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
        """Draw an epoch: the order of the examples, and their augmentation."""
        xp, N = array_namespace(self.x), self.x.shape[0]
        self._epoch = dict(rng.bit_generator.state)
        if self.batch_size is not None:
            self._order = to_library(rng.permutation(N), xp)
        if self.augment is not None:
            self._draws = to_library(self.augment.draw(N, rng), xp)
