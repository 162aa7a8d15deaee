"""Optimisers: one step, in place, on the vector theta."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import isfinite
from typing import Any

from minintk.arrays import Array, array_namespace, cache_slices


class Optimizer(ABC):
    """theta <- theta + step(gradient).  `lr` is the learning rate; t = lr x steps is the time of the theory."""

    lr: float

    @abstractmethod
    def init(self, theta: Array) -> Any:
        """The optimiser's memory before the first step; arrays of theta's shape."""

    @abstractmethod
    def step(self, theta: Array, gradient: Array, memory: Any, scales: Array | None) -> None:
        """One step, in place on theta and memory; `gradient` is used up.  scales : (P,), or None for all ones."""


@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent with heavy-ball momentum and weight decay, per-parameter scales s:

        v <- momentum v + g + weight_decay theta,     theta <- theta - lr s v

    Full batch or mini-batch is `train`'s choice.  Raises ValueError for a learning rate <= 0, momentum outside [0, 1)
    or weight_decay < 0.

    >>> SGD(lr=0.1, momentum=0.9)
    SGD(lr=0.1, momentum=0.9, weight_decay=0.0)
    """

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"SGD(lr=...) expects a finite number > 0, got {self.lr!r}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"SGD(momentum=...) expects a number in [0, 1), got {self.momentum!r}")
        if not (isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise ValueError(f"SGD(weight_decay=...) expects a finite number >= 0, got {self.weight_decay!r}")

    def init(self, theta: Array) -> Array | None:
        return array_namespace(theta).zeros_like(theta) if self.momentum else None

    def step(self, theta: Array, gradient: Array, memory: Array | None, scales: Array | None) -> None:
        lr, weight_decay = float(self.lr), float(self.weight_decay)  # a NumPy scalar would compute in float64
        for piece in cache_slices(theta):
            p, g = theta[..., piece], gradient[..., piece]
            if weight_decay:
                g += weight_decay * p
            v = g
            if memory is not None:
                v = memory[..., piece]
                v *= float(self.momentum)
                v += g
            array_namespace(p).multiply(v, lr if scales is None else lr * scales[piece], out=g)
            p -= g
