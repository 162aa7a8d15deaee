"""Take one optimiser step on the vector theta, in place.

    SGD         v <- momentum v + g'           theta <- theta - lr v                    g' = s g + weight_decay u
    Nesterov    v <- momentum v + g'           theta <- theta - lr (g' + momentum v)
    Adam        m^, r^ : moments of g          theta <- theta - lr (s m^ / (sqrt(r^) + eps) + weight_decay u)

g is the gradient, and s contains the learning-rate scale of each parameter.  u is theta, or theta - theta_0 with
`towards=theta_0`.  Weight decay is not multiplied by s, so that it is the same in equivalent parametrizations.  If g
and the memory are 0, a step of SGD or Adam multiplies u by 1 - lr weight_decay.  Frozen tensors (s = 0) do not decay.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Any, ClassVar, Self, cast

from minintk.arrays import Array, array_namespace, check_finite, on_host, own
from minintk.files.writing import digest
from minintk.memory import cache_slices
from minintk.spec.parametrization import Rule
from minintk.threads import parallel
from minintk.thresholds import THRESHOLDS, cut
from minintk.training.schedules import Schedule, rate, time
from minintk.validate import number, real


@dataclass(frozen=True)
class Optimizer(ABC):
    """Base class of optimisers.  To define an optimiser, write a frozen dataclass that defines `step` (and `init`).

    lr : the learning rate, a number or a schedule.
    rule : "sgd", "adam" or "none", which selects the learning-rate scales of the parametrization.
    towards : (P,) or (E, P), the point towards which weight decay pulls theta.  None means 0.

    Raises ValueError if lr <= 0, weight_decay < 0 or lr weight_decay >= 1, or if momentum, b1 or b2 is not in [0, 1).
    """

    lr: float | Schedule
    rule: ClassVar[Rule] = "sgd"
    weight_decay = 0.0  # not fields, because a subclass's arguments would come after them
    towards, _k = cast("Array | None", None), 0

    def __post_init__(self) -> None:
        """Raise ValueError if an argument is out of range."""
        name, memories = type(self).__name__, [name for name in ("momentum", "b1", "b2") if hasattr(self, name)]
        if not isinstance(self.lr, Schedule):
            number(f"{name}(lr=...)", self.lr)
        for memory in memories:
            if not 0 <= real(getattr(self, memory)) < 1:
                raise ValueError(f"{name}({memory}=...) expects a number in [0, 1), got {getattr(self, memory)!r}")
        number(f"{name}(weight_decay=...)", self.weight_decay, zero=True)
        if not isinstance(self.lr, Schedule):
            _check_decay(self, float(self.lr))
        for name in ("lr", *memories, "weight_decay"):
            if hasattr(value := getattr(self, name), "dtype"):  # the caller could change an array later
                object.__setattr__(self, name, float(value))
        if self.towards is not None:
            object.__setattr__(self, "towards", own(self.towards))
            object.__setattr__(self, "_point", digest(self.towards))  # compared by == instead of `towards`

    @property
    def reach(self) -> float:
        """Return the stability bound on lr lambda for a quadratic loss of curvature lambda, or inf if none is known."""
        return inf

    @property
    def rate(self) -> float:
        """Return the learning rate lr as a number.  Raise TypeError if lr is a schedule."""
        if isinstance(self.lr, Schedule):
            raise TypeError(f"the rate of {self.lr!r} depends on the step: optimizer.at(step).step(...)")
        return float(self.lr)

    @property
    def k(self) -> int:
        """Return the step number k = 1, 2, ...  Raise TypeError if `at` has not set k."""
        if not self._k:
            raise TypeError(f"the number k of {self!r} depends on the step: optimizer.at(step).step(...)")
        return self._k

    def at(self, step: int) -> Self:
        """Return the optimiser for step `step` = 0, 1, ...  Its learning rate is a number, and k = step + 1."""
        return _changed(self, lr=rate(self.lr, step), _k=step + 1)

    def t(self, steps: int) -> float:
        """Return the time t after `steps` steps: lr x steps, or the sum of the first `steps` rates of a schedule."""
        return time(self.lr, steps)

    def check(self, theta: Array, steps: int) -> None:
        """Raise an error if `towards` does not fit theta or is not finite, or if lr weight_decay >= 1 at some step."""
        if self.weight_decay and isinstance(self.lr, Schedule):
            _check_decay(self, max(map(self.lr, range(steps)), default=0.0))
        if (a := self.towards) is None:
            return
        array_namespace(theta, a)
        if tuple(a.shape) not in {tuple(theta.shape), tuple(theta.shape[-1:])}:
            raise ValueError(f"towards expects a point like theta, {tuple(theta.shape)}, got {tuple(a.shape)}")
        if a.dtype != theta.dtype:
            raise TypeError(f"towards must have the dtype of theta, {theta.dtype}, got {a.dtype}")
        check_finite("towards", a)

    def members(self, which: slice) -> Self:
        """Return the optimiser for some members of an ensemble, with their rows of `towards`."""
        if self.towards is None or self.towards.ndim == 1:
            return self
        return _changed(self, towards=self.towards[which])

    def scale_and_decay(self, g: Array, theta: Array, scales: Array | None, at: slice, lr: float = 1.0) -> None:
        """On the slice `at`, set g to s g + lr weight_decay u, with u = theta - towards, or to 0 where s = 0."""
        if scales is not None:
            g *= scales[at]
        if self.weight_decay:
            u = theta[..., at] if self.towards is None else theta[..., at] - self.towards[..., at]
            shrink = lr * float(self.weight_decay)
            g += (shrink if scales is None else shrink * array_namespace(theta).sign(scales[at])) * u

    def init(self, theta: Array) -> Any:
        """Return the initial memory, ([E], ..., P): the velocity v = 0, or None without momentum."""
        return array_namespace(theta).zeros_like(theta) if getattr(self, "momentum", 0.0) else None

    @abstractmethod
    def step(self, theta: Array, gradient: Array, memory: Any, scales: Array | None) -> None:
        """Update theta and memory in place.  `gradient` may be overwritten.  scales : (P,), or None for ones."""


@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent with heavy-ball momentum, weight decay and per-parameter scales s:

        v <- momentum v + s g + weight_decay u,     theta <- theta - lr v

    lr : a number, or a schedule (`minintk.training.schedules`).  The batch size is an argument of `train`.
    towards : theta_0, (P,) or (E, P).  If given, u = theta - theta_0, else u = theta (Samarin et al. 2022, eq. (2)).
        For a `Linearized` model and mn.mse, full-batch descent with decay towards theta_0 converges to the solution of
        `solve_gram` with ridge = N weight_decay (if s = 1).  With mn.sum_of_squares, the ridge is half as large.

    Raises ValueError if lr <= 0, weight_decay < 0, lr weight_decay >= 1 or momentum is not in [0, 1).

    >>> SGD(lr=0.1, momentum=0.9)
    SGD(lr=0.1, momentum=0.9, weight_decay=0.0)
    """

    momentum: float = 0.0
    weight_decay: float = 0.0
    towards: Array | None = field(default=None, repr=False, compare=False)
    _point: str = field(default="", init=False, repr=False)
    looks_ahead: ClassVar[bool] = False

    @property
    def reach(self) -> float:
        """Return 2 (1 + momentum)."""
        return 2 * (1 + float(self.momentum))

    def step(self, theta: Array, gradient: Array, memory: Any, scales: Array | None) -> None:
        xp = array_namespace(theta)  # Python floats below, because a NumPy scalar would promote to float64
        lr, momentum = self.rate, float(self.momentum)

        def work(at: slice) -> None:
            p, g = theta[..., at], gradient[..., at]
            self.scale_and_decay(g, theta, scales, at)
            v = g
            if memory is not None:
                v = memory[..., at]
                v *= momentum
                v += g
            if self.looks_ahead and memory is not None:
                g += momentum * v
                v = g
            p -= xp.multiply(v, lr, out=g)

        _in_pieces(work, theta)


@dataclass(frozen=True)
class Nesterov(SGD):
    """Gradient descent with Nesterov momentum.  The arguments and errors are those of `SGD`.

        g' = s g + weight_decay u,     v <- momentum v + g',     theta <- theta - lr (g' + momentum v)

    See Sutskever et al. 2013.  In contrast to that paper, the gradient is evaluated at theta.

    >>> Nesterov(lr=0.1)
    Nesterov(lr=0.1, momentum=0.9, weight_decay=0.0)
    """

    momentum: float = 0.9
    looks_ahead: ClassVar[bool] = True

    @property
    def reach(self) -> float:
        """Return 2 (1 + momentum) / (1 + 2 momentum)."""
        return 2 * (1 + float(self.momentum)) / (1 + 2 * float(self.momentum))


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam with bias correction and decoupled weight decay (AdamW):

        m <- b1 m + (1 - b1) g,     r <- b2 r + (1 - b2) g^2,     m^ = m / (1 - b1^k),     r^ = r / (1 - b2^k)
        theta <- theta - lr (s m^ / (sqrt(r^) + eps) + weight_decay u)                     in step k = 1, 2, ...

    See Kingma, Ba 2015 and Loshchilov, Hutter 2019.  The decay is separate from g, because an L2 term in g would be
    divided by sqrt(r^).  u is as in `SGD`, but training does not converge to a ridge solution.  s contains the scales
    for Adam.  eps must be much smaller than the entries of g, which decrease with the width.  ``at(step)`` sets k.
    memory : ([E], 2, P), m and r.  Raises the errors of `Optimizer`, and ValueError unless 0 < eps < inf.

    >>> import numpy as np
    >>> adam, theta = Adam(lr=0.1), np.array([1.0, -2.0])
    >>> adam.at(0).step(theta, np.array([5.0, -0.01]), adam.init(theta), None)
    >>> theta.round(6).tolist()                      # the first step is lr in every direction, for any gradient
    [0.9, -1.9]
    """

    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    towards: Array | None = field(default=None, repr=False, compare=False)
    _point: str = field(default="", init=False, repr=False)
    rule: ClassVar[Rule] = "adam"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.eps < inf:
            raise ValueError(f"{type(self).__name__}(eps=...) expects a finite number > 0, got {self.eps!r}")

    def init(self, theta: Array) -> Array:
        """Return m = r = 0, ([E], 2, P)."""
        xp = array_namespace(theta)
        return xp.zeros((*theta.shape[:-1], 2, theta.shape[-1]), dtype=theta.dtype)

    def step(self, theta: Array, gradient: Array, memory: Array, scales: Array | None) -> None:
        lr, b1, b2, k = self.rate, float(self.b1), float(self.b2), self.k
        root = sqrt(1 - b2**k)
        rate, eps = lr * root / (1 - b1**k), float(self.eps) * root  # so that the step is rate m / (sqrt(r) + eps)
        xp = array_namespace(theta)

        def work(at: slice) -> None:
            p, g, m, r = theta[..., at], gradient[..., at], memory[..., 0, at], memory[..., 1, at]
            m *= b1
            m += (1 - b1) * g
            g *= g
            g *= 1 - b2
            r *= b2
            r += g
            xp.sqrt(r, out=g)
            g += eps
            xp.divide(m, g, out=g)
            g *= rate
            self.scale_and_decay(g, theta, scales, at, lr)
            p -= g

        _in_pieces(work, theta)


def _changed(optimizer: Any, **values: Any) -> Any:
    """Return a copy of the optimiser with new values of some fields.  The values are not checked."""
    other = copy(optimizer)
    vars(other).update(values)
    return other


def _in_pieces(work: Callable[[slice], None], theta: Array) -> None:
    """Call work(at) on slices of the last axis that fit into a core's cache, in parallel if the axis is long."""
    if theta.size <= THRESHOLDS.vector_piece:
        return work(slice(None))

    def some(part: slice) -> None:
        for at in cache_slices(theta[..., part]):
            work(slice(part.start + at.start, part.start + at.stop))

    parallel(some, cut(theta.shape[-1], theta.shape[-1] if on_host(array_namespace(theta)) else 0, THRESHOLDS.vector))


def _check_decay(optimizer: Any, lr: float) -> None:
    """Raise ValueError unless 1 - lr weight_decay > 0.  A step with zero gradient multiplies u by this factor."""
    if not lr * float(optimizer.weight_decay) < 1:
        what = f"a step at lr={lr:g} with weight_decay={optimizer.weight_decay:g} multiplies the weights by"
        found = f"1 - lr weight_decay = {1 - lr * optimizer.weight_decay:.3g}"
        raise ValueError(f"{what} {found}, which must stay above 0: take a smaller one")
