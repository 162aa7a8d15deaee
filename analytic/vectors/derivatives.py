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
from math import exp, log2, pi
from typing import Any, NamedTuple

from analytic.vectors.duals import Erf, Homogeneous
from analytic.vectors.rules import Affine, Normalise, ResidualSum
from analytic.vectors.state import Program, Step
from minintk import spec as s
from minintk.arrays import Array
from minintk.spec.shapes import UnsupportedLayer

PARAMETERS = ("w_std", "b_std")


class Tangent(NamedTuple):
    """A number a of rows or pairs, and da, its derivatives, (2, *a.shape): in log w_std, log b_std."""

    a: Array
    da: Array


@dataclass(frozen=True)
class State:
    """q : (N,), q2 : (M,), the variances of rows and columns.  K, Theta : (N, M).  diag : whether K is q itself."""

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
        closed(step.branch) and closed(step.shortcut) if isinstance(step, ResidualSum)
        else isinstance(step, Affine | Normalise | Homogeneous | Erf) for step in program
    )  # fmt: skip


STEP = 5e-4
"""In the logarithm; the stencil's error is STEP^4 / 30 of the fifth derivative, rounding about eps / STEP."""


def differences(kernel_of: Callable[[float], Any], x1: Array, x2: Array) -> list[Array]:
    """dK, dTheta by central differences of fourth order; kernel_of(factor) : the kernel with a scaled parameter."""
    twice, once, minus, far = (kernel_of(exp(i * STEP)).both(x1, x2) for i in (2, 1, -1, -2))
    return [(8 * (b - c) - (a - d)) / (12 * STEP) for a, b, c, d in zip(twice, once, minus, far)]


def derivatives(program: Program, doubled: dict[str, Program], xp: Any, x1: Array, x2: Array) -> tuple[Array, ...]:
    """K, Theta : (N, M), and dK, dTheta : (2, N, M).  doubled : {name: the program with twice the w_std, or b_std}."""

    def still(a: Array) -> Tangent:
        return Tangent(a, xp.zeros((2, *a.shape)))

    d, K = x1.shape[1], x1 @ x2.T / x1.shape[1]
    state = State(still((x1**2).sum(1) / d), still((x2**2).sum(1) / d), still(K), still(xp.zeros_like(K)))
    state = _run(program, doubled, xp, state)
    return state.K.a, state.Theta.a, state.K.da, state.Theta.da


def _run(program: Program, doubled: dict[str, Program], xp: Any, state: State) -> State:
    for i, step in enumerate(program):
        state = _step(step, {name: steps[i] for name, steps in doubled.items()}, xp, state)
    return state


def _step(step: Step, doubled: dict[str, Any], xp: Any, state: State) -> State:
    match step:
        case Affine():
            return _affine(step, [doubled[name] for name in PARAMETERS], xp, state)
        case Homogeneous():
            return _homogeneous(step, xp, state)
        case Erf():
            return _erf(xp, state)
        case Normalise():
            return _normalise(step, xp, state)
        case ResidualSum():
            one = _run(step.branch, {name: other.branch for name, other in doubled.items()}, xp, state)
            two = _run(step.shortcut, {name: other.shortcut for name, other in doubled.items()}, xp, state)
            parts = zip(vars(one).values(), vars(two).values())
            return State(*(Tangent(a.a + b.a, a.da + b.da) for a, b in parts))
    raise UnsupportedLayer(f"{step!r} has no derivatives in closed form")


def _affine(step: Affine, doubled: list[Affine], xp: Any, state: State) -> State:
    def coefficient(of: Any) -> tuple[float, Array]:
        """Its value v and dv = k v, where twice the parameter gives 2^k v."""
        v = of(step)
        return v, xp.asarray([v * log2(of(other) / v) if v else 0.0 for other in doubled])

    w2, dw2 = coefficient(lambda a: a.w2)
    beta2, dbeta2 = coefficient(lambda a: a.beta2)
    ratio, dratio = coefficient(lambda a: a.ratio)
    _, dtrained = coefficient(lambda a: a.rest + a.ratio * a.beta2)
    drest = dtrained - dratio * beta2 - ratio * dbeta2

    def along(d: Array, a: Array) -> Array:
        return d.reshape((2,) + (1,) * a.ndim)

    def variance(v: Tangent) -> Tangent:
        return Tangent(w2 * v.a + beta2, along(dw2, v.a) * v.a + w2 * v.da + along(dbeta2, v.a))

    K, T = variance(state.K), state.Theta
    Theta = Tangent(
        w2 * T.a + ratio * K.a + step.rest,
        along(dw2, T.a) * T.a + w2 * T.da + along(dratio, K.a) * K.a + ratio * K.da + along(drest, K.a),
    )
    return State(variance(state.q), variance(state.q2), K, Theta)


def _homogeneous(step: Homogeneous, xp: Any, state: State) -> State:
    """kappa = alpha^2 K + beta^2 (2/pi) n (sin a + (pi/2 - a) c),  n = sqrt(q q'),  c = K / n = cos a."""
    q, q2, K, T = state.q, state.q2, state.K, state.Theta
    gain, odd = step.alpha**2 + step.beta**2, 2 / pi * step.beta**2
    n = xp.sqrt(q.a[:, None] * q2.a)
    some = xp.where(n > 0, n, 1.0)
    c = xp.clip(K.a / some, -1.0, 1.0)
    relative = _relative(xp, q)[:, :, None] + _relative(xp, q2)[:, None, :]  # dq/q + dq'/q'
    dc = xp.where(n > 0, K.da / some - c * relative / 2, 0.0)
    sin = xp.sqrt(xp.maximum((1 - c) * (1 + c), 0.0))
    kappa = step.alpha**2 * K.a + odd * n * (sin + c * xp.arcsin(c))
    dot = step.alpha**2 + odd * xp.arcsin(c)
    ddot = odd * dc / xp.where(sin > 0, sin, xp.inf)
    dot = xp.where(n > 0, dot, _at_zero(step, xp, q.a, q2.a))
    dK = dot * K.da + odd * n * sin * relative / 2
    one, two = (Tangent(gain * v.a, gain * v.da) for v in (q, q2))
    return State(one, two, Tangent(kappa, dK), Tangent(T.a * dot, T.da * dot + T.a * ddot))


def _at_zero(step: Homogeneous, xp: Any, q: Array, q2: Array) -> Array:
    """E phi' phi' where a row is zero: phi'(0) for it, the mean slope alpha for another."""
    return xp.where(q > 0, step.alpha, step.at_zero)[:, None] * xp.where(q2 > 0, step.alpha, step.at_zero)


def _relative(xp: Any, q: Tangent) -> Array:
    return xp.where(q.a > 0, q.da / xp.where(q.a > 0, q.a, 1.0), 0.0)


def _erf(xp: Any, state: State) -> State:
    """kappa = (2/pi) asin sigma,  sigma = 2K / sqrt((1 + 2q)(1 + 2q')),  kappa_dot = (4/pi) / sqrt(g)."""
    q, q2, K, T = state.q, state.q2, state.K, state.Theta
    left, right = (1 + 2 * q.a)[:, None], 1 + 2 * q2.a
    dleft, dright = 2 * q.da[:, :, None], 2 * q2.da[:, None, :]
    g = left * right - 4 * K.a**2
    dg = dleft * right + left * dright - 8 * K.a * K.da
    sigma = 2 * K.a / xp.sqrt(left * right)
    dot = 4 / pi / xp.sqrt(g)
    dK = dot * (K.da - K.a * (dleft / left + dright / right) / 2)  # sqrt(g) = sqrt(1 - sigma^2) sqrt((1+2q)(1+2q'))
    one, two = (
        Tangent(2 / pi * xp.arcsin(2 * v.a / (1 + 2 * v.a)), 4 / pi * v.da / ((1 + 2 * v.a) * xp.sqrt(1 + 4 * v.a)))
        for v in (q, q2)
    )
    kappa = Tangent(2 / pi * xp.arcsin(sigma), dK)
    return State(one, two, kappa, Tangent(T.a * dot, T.da * dot - T.a * dot * dg / (2 * g)))


def _normalise(step: Normalise, xp: Any, state: State) -> State:
    """K' = K / sqrt((q + eps)(q' + eps)), Theta' the same of Theta."""
    q, q2 = state.q, state.q2
    f, f2 = xp.sqrt(step.gain(q.a))[:, None], xp.sqrt(step.gain(q2.a))
    df = -(q.da / (q.a + step.eps))[:, :, None] / 2 - (q2.da / (q2.a + step.eps))[:, None, :] / 2  # d log
    one, two = (Tangent(v.a * step.gain(v.a), v.da * step.eps * step.gain(v.a) ** 2) for v in (q, q2))
    K, Theta = (Tangent(v.a * f * f2, (v.da + v.a * df) * f * f2) for v in (state.K, state.Theta))
    return State(one, two, K, Theta)
