"""Losses: their value, and their derivative in the outputs, the cotangent that backward sweeps start from.

f : ([E], N, C) outputs, y : (N, C) targets; one value for each member of an ensemble.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from minintk.arrays import Array, array_namespace, check_finite, check_floating


class Loss(ABC):
    """A loss L(f, y); `cotangent` is dL/df."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, f: Array, y: Array) -> Array:
        """L : () or (E,)."""

    @abstractmethod
    def cotangent(self, f: Array, y: Array) -> Array:
        """dL/df, of the shape of f."""

    def check(self, y: Array, outputs: tuple[int, int]) -> None:
        """Raise unless y : (N, C) are targets for this loss."""
        check_floating("y", y)
        if tuple(y.shape) != tuple(outputs):
            hint = (
                ": a single output needs a column, y[:, None]"
                if tuple(y.shape) == outputs[:1] and outputs[1] == 1
                else ""
            )
            raise ValueError(f"y expects shape (N, C) = {tuple(outputs)}, got {tuple(y.shape)}{hint}")
        check_finite("y", y)


@dataclass(frozen=True)
class MeanSquared(Loss):
    """L = 1/(2N) sum_n |f_n - y_n|^2,   dL/df = (f - y) / N.

    >>> import numpy as np
    >>> float(mse(np.array([[1.0], [3.0]]), np.array([[0.0], [0.0]])))
    2.5
    """

    def __call__(self, f: Array, y: Array) -> Array:
        r = f - y
        return array_namespace(f).sum(r * r, axis=(-2, -1)) / (2 * f.shape[-2])

    def cotangent(self, f: Array, y: Array) -> Array:
        return (f - y) / f.shape[-2]


@dataclass(frozen=True)
class SoftmaxCrossEntropy(Loss):
    """L = 1/N sum_n (log sum_c exp f_nc - sum_c y_nc f_nc),   dL/df = (softmax(f) - y) / N.

    The rows of y are one-hot, or probabilities.

    >>> import numpy as np
    >>> round(float(softmax_cross_entropy(np.zeros((2, 4)), np.eye(4)[:2])), 12) == round(float(np.log(4)), 12)
    True
    """

    def __call__(self, f: Array, y: Array) -> Array:
        xp = array_namespace(f, y)
        top = xp.max(f, axis=-1, keepdims=True)
        log_sum = xp.log(xp.sum(xp.exp(f - top), axis=-1)) + top[..., 0]
        return xp.mean(log_sum - xp.sum(y * f, axis=-1), axis=-1)

    def cotangent(self, f: Array, y: Array) -> Array:
        xp = array_namespace(f, y)
        p = xp.exp(f - xp.max(f, axis=-1, keepdims=True))
        p /= xp.sum(p, axis=-1, keepdims=True)
        p -= y
        p /= f.shape[-2]
        return p

    def check(self, y: Array, outputs: tuple[int, int]) -> None:
        super().check(y, outputs)
        xp = array_namespace(y)
        off = float(xp.max(xp.abs(xp.sum(y, axis=-1) - 1)))
        if off > 1e-3 or float(xp.min(y)) < 0:
            raise ValueError(
                "softmax_cross_entropy expects each row of y to be a probability distribution (one-hot labels), "
                f"got a row whose sum is off by {off:.3g} or an entry {float(xp.min(y)):.3g}"
            )


mse = MeanSquared()
softmax_cross_entropy = SoftmaxCrossEntropy()
