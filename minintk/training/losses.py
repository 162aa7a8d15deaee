"""Compute losses L(f, y) and cotangents dL/df for outputs f : ([E], N, C) and targets y : (N, C)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from minintk.arrays import Array, array_namespace, check_finite, check_floating, scipy_module
from minintk.models.model import Model, check_model
from minintk.validate import number

COLUMN = ": a single output needs a column, y[:, None]"


class Loss(ABC):
    """Base class of losses L(f, y) and their cotangents dL/df.

    The loss must be NaN if f or y contains NaN, because training uses the loss to detect divergence.
    curvature : c if d2L/df2 is c/N times the identity (as for a squared loss), else None.
    hessian_by_targets : False if d2L/df2 does not depend on y.
    ends : True if gradient flow can reach a loss of exactly zero in finite time.
    """

    __slots__ = ()
    curvature: ClassVar[float | None] = None
    hessian_by_targets: ClassVar[bool] = True
    ends: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, f: Array, y: Array) -> Array:
        """Return L : () or (E,)."""

    @abstractmethod
    def cotangent(self, f: Array, y: Array) -> Array:
        """Return dL/df, with the shape of f."""

    def hessian(self, f: Array, y: Array, v: Array) -> Array:
        """Return (d2L/df2) v, with the shape of f.  Raise NotImplementedError if the loss does not define it."""
        raise NotImplementedError(f"{self!r} has no second derivative: write hessian(f, y, v)")

    def check(self, y: Array, outputs: tuple[int, int]) -> None:
        """Raise TypeError or ValueError unless y contains valid targets for this loss, of shape `outputs` = (N, C)."""
        check_not_classes(y, outputs)
        check_floating("y", y)
        if tuple(y.shape) != tuple(outputs):
            hint = COLUMN if (*y.shape, 1) == tuple(outputs) else ""
            raise ValueError(f"y expects shape (N, C) = {tuple(outputs)}, got {tuple(y.shape)}{hint}")
        check_finite("y", y)


def check_not_classes(y: Array, outputs: tuple[int, int]) -> None:
    """Raise TypeError if y contains class numbers or class names instead of one column per class.  outputs : (N, C).

    >>> import numpy as np
    >>> check_not_classes(np.array([0, 2, 1]), (3, 3))
    Traceback (most recent call last):
    TypeError: y expects a column for each class, (N, C) = (3, 3), got class numbers: numpy.eye(3)[y], in theta's dtype
    """
    kind = getattr(getattr(y, "dtype", None), "kind", "")
    if kind in "OUS" and kind:
        of = "numpy.eye(C)[numpy.unique(y, return_inverse=True)[1]]"
        raise TypeError(f"y expects numbers, (N, C) = {tuple(outputs)}, got {y.dtype}: if these are class names, {of}")
    if kind in "iu" and kind and outputs[1] > 1 and tuple(y.shape) in ((outputs[0],), (outputs[0], 1)):
        remedy = f"numpy.eye({outputs[1]})[y{'[:, 0]' if y.ndim == 2 else ''}], in theta's dtype"
        raise TypeError(f"y expects a column for each class, (N, C) = {tuple(outputs)}, got class numbers: {remedy}")


def check_loss(loss: Any) -> None:
    """Raise TypeError unless `loss` is a `Loss`."""
    if not isinstance(loss, Loss):
        raise TypeError(f"loss expects a loss such as mn.mse or mn.softmax_cross_entropy, got {loss!r}")


def check_targets(loss: Any, y: Array, outputs: tuple[int, int], like: Array) -> None:
    """Raise TypeError or ValueError unless y : (N, C) contains targets for this loss in the dtype of `like`."""
    check_loss(loss)
    loss.check(y, outputs)
    if y.dtype != like.dtype:
        raise TypeError(f"y must have the dtype of theta, {like.dtype}, got {y.dtype}: y.astype({like.dtype})")


def check_problem(model: Model, theta: Array, x: Array, y: Array, loss: Any) -> None:
    """Raise TypeError or ValueError unless the arguments are compatible and there is at least one example."""
    check_model(model)
    model.check(theta, x)
    if x.shape[0] == 0:
        raise ValueError("x expects at least one example, got none")
    check_finite("theta", theta)
    array_namespace(theta, x, y)
    check_targets(loss, y, (x.shape[0], model.outputs), theta)


def _fitting(f: Array, y: Array) -> Any:
    """Check f : ([E], N, C) and y : (N, C) before a loss is computed, and return their array namespace.

    Raises TypeError unless both are unmasked float32 or float64 arrays, because uint8 overflows and float16 is
    imprecise.  Raises ValueError if N = 0, or if their (N, C) differ, because they would otherwise broadcast silently.
    """
    check_floating("f", f)
    check_floating("y", y)
    xp = array_namespace(f, y)
    if f.ndim < 2 or tuple(f.shape[-2:]) != tuple(y.shape[-2:]):
        hint = COLUMN if y.ndim == 1 and f.shape[-1:] == (1,) else ""
        raise ValueError(f"f ([E], N, C) and y (N, C) expect one (N, C), got {tuple(f.shape)}, {tuple(y.shape)}{hint}")
    if y.shape[0] == 0:
        raise ValueError(f"f and y expect at least one example, N >= 1, got y of shape {tuple(y.shape)}")
    return xp


@dataclass(frozen=True)
class _Squares(Loss):
    """L = c/(2N) sum_n |f_n - y_n|^2, where c is the curvature."""

    curvature: ClassVar[float]
    hessian_by_targets: ClassVar[bool] = False

    def __call__(self, f: Array, y: Array) -> Array:
        xp = _fitting(f, y)
        r = f - y
        return xp.sum(r * r, axis=(-2, -1)) / (2 / self.curvature * f.shape[-2])

    def cotangent(self, f: Array, y: Array) -> Array:
        _fitting(f, y)
        return (f - y) / (f.shape[-2] / self.curvature)

    def hessian(self, f: Array, y: Array, v: Array) -> Array:
        _fitting(f, y)
        return v / (f.shape[-2] / self.curvature)


@dataclass(frozen=True)
class MeanSquared(_Squares):
    """L = 1/(2N) sum_n |f_n - y_n|^2,   dL/df = (f - y) / N.

    >>> import numpy as np
    >>> float(mse(np.array([[1.0], [3.0]]), np.array([[0.0], [0.0]])))
    2.5
    """

    curvature: ClassVar[float] = 1.0


@dataclass(frozen=True)
class SumOfSquares(_Squares):
    """L = 1/N sum_n |f_n - y_n|^2,   dL/df = 2 (f - y) / N,   as in Samarin et al. 2022, without the factor 1/2.

    >>> import numpy as np
    >>> float(sum_of_squares(np.array([[1.0], [3.0]]), np.array([[0.0], [0.0]])))
    5.0
    """

    curvature: ClassVar[float] = 2.0


@dataclass(frozen=True)
class SoftmaxCrossEntropy(Loss):
    """L = 1/N sum_n (log sum_c exp f_nc - sum_c y_nc f_nc),   dL/df = (softmax(f) - y) / N.

    Each row of y is one-hot or a probability distribution.

    >>> import numpy as np
    >>> round(float(softmax_cross_entropy(np.zeros((2, 4)), np.eye(4)[:2])), 12) == round(float(np.log(4)), 12)
    True
    """

    hessian_by_targets: ClassVar[bool] = False

    def __call__(self, f: Array, y: Array) -> Array:
        xp = _fitting(f, y)
        top = xp.max(f, axis=-1, keepdims=True)
        log_sum = xp.log(xp.sum(xp.exp(f - top), axis=-1)) + top[..., 0]
        return xp.mean(log_sum - xp.sum(y * f, axis=-1), axis=-1)

    def cotangent(self, f: Array, y: Array) -> Array:
        p = self._probabilities(f, y)
        p -= y
        p /= f.shape[-2]
        return p

    def hessian(self, f: Array, y: Array, v: Array) -> Array:
        """Return p (v - <p, v>) / N for every example, with p = softmax(f)."""
        p = self._probabilities(f, y)
        return p * (v - array_namespace(f).sum(p * v, axis=-1, keepdims=True)) / f.shape[-2]

    def _probabilities(self, f: Array, y: Array) -> Array:
        """Return softmax(f)."""
        xp = _fitting(f, y)
        p = xp.exp(f - xp.max(f, axis=-1, keepdims=True))
        return p / xp.sum(p, axis=-1, keepdims=True)

    def check(self, y: Array, outputs: tuple[int, int]) -> None:
        super().check(y, outputs)
        if outputs[1] == 1:
            raise ValueError("softmax_cross_entropy of one output is 0 whatever it says: use mn.logistic, y = -1 or 1")
        xp = array_namespace(y)
        off = float(xp.max(xp.abs(xp.sum(y, axis=-1) - 1)))
        if off > 1e-3 or float(xp.min(y)) < 0:
            got = f"a row whose sum is off by {off:.3g} or an entry {float(xp.min(y)):.3g}"
            raise ValueError(f"softmax_cross_entropy expects a probability distribution in each row of y, got {got}")


@dataclass(frozen=True)
class _Margin(Loss):
    """A loss of the margin y f, for one output and y = -1 or 1.  alpha : as in `Centred`; 1 means no scaling."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        number(f"{type(self).__name__}(alpha=...)", self.alpha)

    def _share(self, f: Array) -> float:
        """Return 1 / (alpha^2 N)."""
        return 1 / (float(self.alpha) ** 2 * int(f.shape[-2]))

    def check(self, y: Array, outputs: tuple[int, int]) -> None:
        if outputs[1] != 1:
            raise ValueError(f"{self!r} is for networks with one output, got {outputs[1]}: end with mn.Dense(1)")
        super().check(y, outputs)
        xp = array_namespace(y)
        if not bool(xp.all(xp.abs(y) == 1)):
            bad = float(y[xp.abs(y) != 1][0])
            raise ValueError(f"{self!r} expects labels y = -1 or 1, got {bad:g}: y = 2.0 * (class == 1) - 1")


@dataclass(frozen=True)
class Hinge(_Margin):
    """L = 1/(alpha^2 N) sum_n max(0, 1 - y_n f_n),   dL/df = -y / (alpha^2 N) if y f < 1, else 0.

    The loss requires one output and y = -1 or 1.  For ``Centred(net, theta0, alpha)``, L is equation (5) of Geiger et
    al. 2020.  Initially, df/dt does not depend on alpha.  A flow ends when every margin y f is at least 1.

    >>> import numpy as np
    >>> f, y = np.array([[0.5], [2.0]]), np.array([[1.0], [-1.0]])
    >>> float(hinge(f, y)), hinge.cotangent(f, y).tolist(), float(Hinge(alpha=10.0)(f, y))
    (1.75, [[-0.5], [0.5]], 0.0175)
    """

    ends: ClassVar[bool] = True
    hessian_by_targets: ClassVar[bool] = False  # this loss has no Hessian

    def __call__(self, f: Array, y: Array) -> Array:
        xp = _fitting(f, y)
        return xp.sum(xp.maximum(1 - y * f, 0), axis=(-2, -1)) * self._share(f)

    def cotangent(self, f: Array, y: Array) -> Array:
        xp = _fitting(f, y)
        return y * (xp.heaviside(1 - y * f, 0.0) * -self._share(f))  # 1 if y f < 1, else 0; NaN for NaN


@dataclass(frozen=True)
class Logistic(_Margin):
    """L = 1/(alpha^2 N) sum_n log(1 + e^(-y_n f_n)),   dL/df = -y / (alpha^2 N (1 + e^(y f))).

    The loss requires one output and y = -1 or 1.  alpha : as in `Hinge`.

    >>> import numpy as np
    >>> float(logistic(np.zeros((2, 1)), np.array([[1.0], [-1.0]]))) == float(np.log(2))
    True
    """

    hessian_by_targets: ClassVar[bool] = False  # d2L/df2 does not depend on y, since y^2 = 1

    def __call__(self, f: Array, y: Array) -> Array:
        xp = _fitting(f, y)
        m = y * f
        return xp.sum(xp.log1p(xp.exp(-xp.abs(m))) + xp.maximum(-m, 0), axis=(-2, -1)) * self._share(f)

    def cotangent(self, f: Array, y: Array) -> Array:
        xp = _fitting(f, y)
        return y * (scipy_module(xp, "special").expit(-y * f) * -self._share(f))

    def hessian(self, f: Array, y: Array, v: Array) -> Array:
        """Return p (1 - p) v / (alpha^2 N), with p = 1 / (1 + e^-f)."""
        expit = scipy_module(_fitting(f, y), "special").expit
        return expit(f) * expit(-f) * (self._share(f) * v)


mse = MeanSquared()
sum_of_squares = SumOfSquares()
softmax_cross_entropy = SoftmaxCrossEntropy()
hinge = Hinge()
logistic = Logistic()
