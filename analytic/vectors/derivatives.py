"""Derivatives of both kernels in the logarithms of all w_std and of all b_std, by forward mode.

The recursion of `analytic.textbook`, with the tangents dK, dTheta of each number carried along:

    Dense         K' = w2 K + beta2,  Theta' = w2 Theta + ratio K' + rest       coefficients are powers of w_std, b_std
    activation    K' = kappa(K, q, q'),  Theta' = Theta kappa_dot
                  dK' = kappa_dot dK + kappa_q dq + kappa_q' dq',  dTheta' = dTheta kappa_dot + Theta dkappa_dot

A derivative steers an optimiser, so that cosines do here: between nearly parallel rows, dTheta is right to 1e-8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import exp, log2, nan, pi
from typing import Any, NamedTuple

from analytic.vectors.closed_forms import ClosedForm
from analytic.vectors.duals import Homogeneous
from analytic.vectors.rules import Affine, Normalise, ResidualSum
from analytic.vectors.scalar_forms import ERF
from analytic.vectors.state import Program
from minintk import spec as s
from minintk.arrays import Array, array_namespace

PARAMETERS = ("w_std", "b_std")


@dataclass(frozen=True)
class Tangent:
    """A number a of rows or pairs, and da, its derivatives, (2, *a.shape): in log w_std, log b_std."""

    a: Any
    da: Any

    def __add__(self, other: Tangent) -> Tangent:
        return Tangent(self.a + other.a, self.da + other.da)

    def __mul__(self, other: Tangent) -> Tangent:
        return Tangent(self.a * other.a, self.da * other.a + self.a * other.da)


class State(NamedTuple):
    """q : (N, 1), q2 : (1, M), the variances of rows and columns.  K, Theta : (N, M)."""

    q: Tangent
    q2: Tangent
    K: Tangent
    Theta: Tangent


def scaled(layer: s.Layer, name: str, factor: float) -> s.Layer:
    """The spec with w_std or b_std of every layer that has one times `factor`.

    >>> scaled(s.Sequential(s.Dense(8, w_std=2.0), s.ReLU()), "w_std", 3.0)
    Sequential(Dense(width=8, w_std=6.0, b_std=0.0, b_init='normal'), ReLU())
    """
    if isinstance(layer, s.Several):
        return type(layer)(*(scaled(inner, name, factor) for inner in layer))
    changed: dict[str, Any] = {}
    here: Any = layer  # a dataclass, as every layer is
    for each in fields(here):
        value = getattr(layer, each.name)
        if isinstance(value, s.Layer):
            changed[each.name] = scaled(value, name, factor)
        elif each.name == name:
            changed[name] = value * factor
    return replace(here, **changed) if changed else layer


def closed(program: Program) -> bool:
    """Whether every step has its derivatives below."""
    return all(
        closed(step.branch) and closed(step.shortcut)
        if isinstance(step, ResidualSum)
        else isinstance(step, Affine | Normalise | Homogeneous) or getattr(step, "form", None) is ERF
        for step in program
    )


STEP = 5e-4
"""In the logarithm; the stencil's error is STEP^4 / 30 of the fifth derivative, rounding about eps / STEP."""


def differences(kernel_of: Callable[[float], Any], x1: Array, x2: Array | None = None) -> list[Array]:
    """dK, dTheta by central differences of fourth order; kernel_of(factor) : the kernel with a scaled parameter."""
    twice, once, minus, far = (kernel_of(exp(i * STEP)).both(x1, x2) for i in (2, 1, -1, -2))
    return [(8 * (b - c) - (a - d)) / (12 * STEP) for a, b, c, d in zip(twice, once, minus, far)]


PAIRS_AT_ONCE, BYTES_OF_A_PAIR = 2**18, 8 * 60
"""Rows are taken so many pairs at a time, each of which then takes 30 numbers, and 8 more in each nested sum."""


def derivatives(program: Program, doubled: list[Program], x1: Array, x2: Array) -> Array:
    """Return the derivatives in log w_std and in log b_std, of K and of Theta, (2, 2, N, M), in the precision of x1.

    NaN where cosines lose the slope of erf (`_erf`).
    doubled : the program with twice the w_std, and that with twice the b_std.
    """
    xp, N, M, d = array_namespace(x1, x2), x1.shape[0], x2.shape[0], x1.shape[1]
    found, step = xp.empty((2, 2, N, M), dtype=x1.dtype), max(1, PAIRS_AT_ONCE // max(1, M))
    columns = xp.astype(x2, xp.float64, copy=False)
    for i in range(0, N, step):
        rows = xp.astype(x1[i : i + step], xp.float64, copy=False)
        K = rows @ columns.T / d
        start = ((rows**2).sum(1)[:, None] / d, (columns**2).sum(1)[None] / d, K, xp.zeros_like(K))
        state = _run(program, doubled, xp, State(*(Tangent(a, xp.zeros((2, *a.shape))) for a in start)))
        found[:, 0, i : i + step], found[:, 1, i : i + step] = state.K.da, state.Theta.da
    return found


def _run(program: Program, doubled: list[Any], xp: Any, state: State) -> State:
    for step, *others in zip(program, *doubled, strict=True):
        match step:
            case Affine():
                state = _affine(step, others, xp, state)
            case Homogeneous():
                state = _homogeneous(step, xp, state)
            case ClosedForm():  # erf
                state = _erf(xp, state)
            case Normalise():
                state = _normalise(step, xp, state)
            case ResidualSum():
                one = _run(step.branch, [other.branch for other in others], xp, state)
                two = _run(step.shortcut, [other.shortcut for other in others], xp, state)
                state = State(*(a + b for a, b in zip(one, two)))
    return state


def _affine(step: Affine, doubled: list[Affine], xp: Any, state: State) -> State:
    def coefficient(of: Callable[[Affine], float]) -> Tangent:
        """Its value v and dv = k v, where twice the parameter gives 2^k v."""
        v = of(step)
        return Tangent(v, xp.asarray([v * log2(of(other) / v) if v else 0.0 for other in doubled]).reshape((2, 1, 1)))

    w2, beta2, ratio = (coefficient(of) for of in (lambda a: a.w2, lambda a: a.beta2, lambda a: a.ratio))
    trained = coefficient(lambda a: a.rest + a.ratio * a.beta2)
    rest = Tangent(step.rest, trained.da - (ratio * beta2).da)
    q, q2, K = (w2 * v + beta2 for v in state[:3])
    return State(q, q2, K, w2 * state.Theta + ratio * K + rest)


def _homogeneous(step: Homogeneous, xp: Any, state: State) -> State:
    """kappa = alpha^2 K + beta^2 (2/pi) n (sin a + (pi/2 - a) c),  n = sqrt(q q'),  c = K / n = cos a."""
    q, q2, K, Theta = state
    gain, odd = Tangent(step.alpha**2 + step.beta**2, 0.0), 2 / pi * step.beta**2
    n = xp.sqrt(q.a) * xp.sqrt(q2.a)
    some = xp.where(n > 0, n, 1.0)
    c = xp.clip(K.a / some, -1.0, 1.0)
    relative = _relative(xp, q) + _relative(xp, q2)
    dc = xp.where(n > 0, K.da / some - c * relative / 2, 0.0)
    sin = xp.sqrt(xp.maximum((1 - c) * (1 + c), 0.0))
    dot = xp.where(n > 0, step.alpha**2 + odd * xp.arcsin(c), _at_zero(step, xp, q.a) * _at_zero(step, xp, q2.a))
    kappa = step.alpha**2 * K.a + odd * n * (sin + c * xp.arcsin(c))
    dkappa = dot * K.da + odd * n * sin * relative / 2
    slopes = Tangent(dot, odd * dc / xp.where(sin > 0, sin, xp.inf))
    return State(gain * q, gain * q2, Tangent(kappa, dkappa), Theta * slopes)


def _at_zero(step: Homogeneous, xp: Any, q: Array) -> Array:
    """The factor of E phi' phi' where a row is zero: phi'(0) of it, the mean slope alpha of another."""
    return xp.where(q > 0, step.alpha, step.at_zero)


def _relative(xp: Any, q: Tangent) -> Array:
    return xp.where(q.a > 0, q.da / xp.where(q.a > 0, q.a, 1.0), 0.0)


SMALLEST_SINE = 1e-8
"""Smallest 1 - sigma^2 that is trusted; its error is 1e-16."""


def _erf(xp: Any, state: State) -> State:
    """kappa = (2/pi) asin sigma,  sigma = 2K / sqrt((1 + 2q)(1 + 2q')),  kappa_dot = (4/pi) / sqrt(g).

    g = (1 + 2q)(1 + 2q')(1 - sigma^2).  Each factor has its own root, so nothing overflows.  The last one may be 1/q,
    with an error of 1e-16: NaN below SMALLEST_SINE.
    """
    q, q2, K, Theta = state
    root = xp.sqrt(1 + 2 * q.a) * xp.sqrt(1 + 2 * q2.a)
    dlog = 2 * q.da / (1 + 2 * q.a) + 2 * q2.da / (1 + 2 * q2.a)
    sigma = 2 * K.a / root
    h = (1 - sigma) * (1 + sigma)
    h = xp.where(h > SMALLEST_SINE, h, nan)
    dot = 4 / pi / root / xp.sqrt(h)
    dkappa = dot * (K.da - K.a * dlog / 2)
    one, two = (
        Tangent(2 / pi * xp.arcsin(2 * v.a / (1 + 2 * v.a)), 4 / pi * v.da / ((1 + 2 * v.a) * xp.sqrt(1 + 4 * v.a)))
        for v in (q, q2)
    )
    slopes = Tangent(dot, -dot * (dlog - 4 * sigma * K.da / root) / (2 * h))
    return State(one, two, Tangent(2 / pi * xp.arcsin(sigma), dkappa), Theta * slopes)


def _normalise(step: Normalise, xp: Any, state: State) -> State:
    """K' = K / sqrt((q + eps)(q' + eps)), Theta' the same of Theta."""
    q, q2, K, Theta = state
    f, f2 = (Tangent(r := xp.sqrt(step.gain(v.a)), -r * (step.gain(v.a) * v.da) / 2) for v in (q, q2))
    return State(q * f * f, q2 * f2 * f2, K * f * f2, Theta * f * f2)
