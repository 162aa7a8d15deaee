"""Define learning-rate schedules.  A schedule returns the rate of each step, and the time t, the sum of the rates:

    lr(s)  for step s = 0, 1, ...          t(n) = sum_{s < n} lr(s)

t corresponds to the time of gradient flow.  Every optimiser accepts a schedule as its learning rate, lr.

>>> lr = WarmUp(2, then=StepDecay(0.4, every=3, factor=0.5))
>>> [round(lr(step), 6) for step in range(7)]
[0.2, 0.4, 0.4, 0.4, 0.4, 0.2, 0.2]
>>> round(lr.t(7), 6)
2.2
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import cos, expm1, fsum, log, pi, sin

from minintk.validate import number, whole


class Schedule(ABC):
    """Base class of schedules.  A subclass is a frozen dataclass whose `__call__` returns the rate of a step."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, step: int) -> float:
        """Return the learning rate of a step, a number >= 0."""

    def t(self, steps: int) -> float:
        """Return sum_{s < steps} lr(s), the time t after `steps` steps."""
        return fsum(self(s) for s in range(steps))


def rate(lr: float | Schedule, step: int) -> float:
    """Return the learning rate at a step.  lr : a number or a schedule."""
    return float(lr(step)) if isinstance(lr, Schedule) else float(lr)


def time(lr: float | Schedule, steps: int) -> float:
    """Return the time t after `steps` steps.  lr : a number or a schedule."""
    return float(lr.t(steps)) if isinstance(lr, Schedule) else float(lr) * steps


@dataclass(frozen=True)
class StepDecay(Schedule):
    """lr(s) = lr factor^floor(s / every).   Samarin et al. 2022 use a factor of 0.1 every 30 epochs on CIFAR-10.

    >>> [StepDecay(1.0, every=2, factor=0.5)(s) for s in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    lr: float
    every: int
    factor: float = 0.1

    def __post_init__(self) -> None:
        number("StepDecay(lr=...)", self.lr)
        object.__setattr__(self, "every", whole("StepDecay(every=...)", self.every))  # NumPy's small integers overflow
        if number("StepDecay(factor=...)", self.factor) > 1:
            raise ValueError(f"StepDecay(factor=...) expects a number <= 1, got {self.factor!r}")

    def __call__(self, step: int) -> float:
        return self.lr * self.factor ** (step // self.every)

    def t(self, steps: int) -> float:
        decays, rest = divmod(steps, self.every)
        last = self.factor**decays
        full = decays if self.factor == 1 else -expm1(decays * log(self.factor)) / (1 - self.factor)  # sum_k factor^k
        return self.lr * (self.every * full + rest * last)


@dataclass(frozen=True)
class Cosine(Schedule):
    """lr(s) = final + (lr - final) (1 + cos(pi s / steps)) / 2 for s < steps, then `final` (Loshchilov, Hutter 2017).

    >>> [round(Cosine(1.0, steps=4)(s), 3) for s in range(6)]
    [1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
    """

    lr: float
    steps: int
    final: float = 0.0

    def __post_init__(self) -> None:
        number("Cosine(lr=...)", self.lr)
        object.__setattr__(self, "steps", whole("Cosine(steps=...)", self.steps))
        if number("Cosine(final=...)", self.final, zero=True) > self.lr:
            raise ValueError(f"Cosine(final=...) expects a number from 0 to lr = {self.lr:g}, got {self.final!r}")

    def __call__(self, step: int) -> float:
        if step >= self.steps:
            return self.final
        return self.final + (self.lr - self.final) * (1 + cos(pi * step / self.steps)) / 2

    def t(self, steps: int) -> float:
        n, a = min(steps, self.steps), pi / (2 * self.steps)
        cosines = sin(n * a) * cos((n - 1) * a) / sin(a)  # sum_{s < n} cos(2 a s)
        return self.final * steps + (self.lr - self.final) * (n + cosines) / 2


@dataclass(frozen=True)
class WarmUp(Schedule):
    """lr(s) = (s + 1) / steps * lr_0 for s < steps, then the rates of `then`, beginning with lr_0 (Goyal et al. 2017).

    >>> [WarmUp(4, then=0.2)(s) for s in range(5)]
    [0.05, 0.1, 0.15000000000000002, 0.2, 0.2]
    """

    steps: int
    then: float | Schedule

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", whole("WarmUp(steps=...)", self.steps))
        if not isinstance(self.then, Schedule):
            number("WarmUp(then=...)", self.then)

    def __call__(self, step: int) -> float:
        if step >= self.steps:
            return rate(self.then, step - self.steps)
        return (step + 1) / self.steps * rate(self.then, 0)

    def t(self, steps: int) -> float:
        n = min(steps, self.steps)
        return n * (n + 1) / (2 * self.steps) * rate(self.then, 0) + time(self.then, steps - n)
