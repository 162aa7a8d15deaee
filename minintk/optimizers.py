"""Optimisers: one step, in place, on the vector theta."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass
from math import isfinite
from typing import Any, Self

from minintk.arrays import Array, array_namespace, cache_slices
from minintk.schedules import Schedule, rate, time


class Optimizer(ABC):
    """theta <- theta + step(gradient).  `lr` is the learning rate, a number or a schedule."""

    lr: float | Schedule

    def at(self, step: int) -> Self:
        """The optimiser of step 0, 1, ...: its learning rate is a number."""
        if not isinstance(self.lr, Schedule):
            return self
        now = copy(self)
        object.__setattr__(now, "lr", rate(self.lr, step))
        return now

    def t(self, steps: int) -> float:
        """The time of the theory after so many steps: lr x steps, or the sum of a schedule's rates."""
        return time(self.lr, steps)

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

    lr : a number, or a schedule (`minintk.schedules`).  Full batch or mini-batch is `train`'s choice.  Raises
    ValueError for a learning rate <= 0, momentum outside [0, 1) or weight_decay < 0.

    >>> SGD(lr=0.1, momentum=0.9)
    SGD(lr=0.1, momentum=0.9, weight_decay=0.0)
    """

    lr: float | Schedule
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.lr, Schedule) and not (isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"SGD(lr=...) expects a finite number > 0, got {self.lr!r}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"SGD(momentum=...) expects a number in [0, 1), got {self.momentum!r}")
        if not (isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise ValueError(f"SGD(weight_decay=...) expects a finite number >= 0, got {self.weight_decay!r}")

    def init(self, theta: Array) -> Array | None:
        return array_namespace(theta).zeros_like(theta) if self.momentum else None

    def step(self, theta: Array, gradient: Array, memory: Array | None, scales: Array | None) -> None:
        if isinstance(self.lr, Schedule):
            raise TypeError(f"the rate of {self.lr!r} depends on the step: optimizer.at(step).step(...)")
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
