"""Bias-free networks of ReLU, LeakyReLU, Abs and Identity: kernels as functions of the angle alone.

Such a network is positively homogeneous, f(s x) = s f(x) for s > 0, so

    K(x, x') = |x| |x'| / d  kappa(theta),      Theta(x, x') = |x| |x'| / d  kappa_ntk(theta),      theta = angle(x, x')

Both functions are smooth in theta (not in cos theta, where they have square roots at +-1), so a short Chebyshev series
in theta replaces any number of layers.  (Cho and Saul 2009; Bietti and Mairal 2019 for the square roots.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import pi
from typing import Any

import numpy as np

from analytic.kernel import DEFAULT_PARAMETRIZATION, Both, Kernel, check_rates, program
from analytic.vectors.duals import Homogeneous
from analytic.vectors.rules import Affine, ResidualSum
from analytic.vectors.state import (
    Law,
    Listing,
    Pairs,
    Program,
    RowState,
    Scratch,
    Step,
    columns,
    run_law,
    run_pairs,
    run_rows,
)
from minintk import spec as s
from minintk.arrays import Array, array_namespace, check_floating
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import UnsupportedLayer

TARGET_ERROR = 1e-13
"""A series is long enough once its error, relative to the value at theta = 0, is below this."""

LARGEST_DEGREE = 1024
"""Largest degree of a series."""


@dataclass(frozen=True)
class AngularSeries(Step):
    """All layers at once: p' and tau' as Chebyshev series in t = 2 theta / pi - 1."""

    program: Program
    p: tuple[float, ...]
    tau: tuple[float, ...]
    error: float

    def law(self, law: Law) -> Law:
        return run_law(self.program, law)

    def rows(self, rows: RowState) -> tuple[RowState, tuple[Array | None]]:
        xp, nonzero = array_namespace(rows.q), None
        if rows.has_zero_rows:  # a row of zeros has no angle, and its kernels are 0
            nonzero = columns(xp, xp.where(rows.q > 0, 1.0, 0.0))
        after = run_rows(self.program, rows)[0]
        return RowState(after.q, after.theta, max(after.error, self.error)), (nonzero,)

    def pairs(self, pairs: Pairs, row: tuple[Array | None]) -> None:
        xp, p, r = pairs.xp, pairs.p, pairs.r
        with pairs.borrow(4) as (t, *scratch):
            if r is None:
                xp.sqrt(p, out=t)
                xp.arcsin(t, out=t)
            else:
                t[...] = xp.where(p < r, xp.arcsin(xp.sqrt(p)), pi / 2 - xp.arcsin(xp.sqrt(r)))
            t *= 4 / pi
            t -= 1
            if pairs.tau is not None:
                clenshaw(xp, self.tau, t, pairs.tau, scratch)
                if row[0] is not None:
                    pairs.tau *= pairs.dot(row[0], row[0], scratch[0])
            clenshaw(xp, self.p, t, p, scratch)
            xp.maximum(p, 0, out=p)
            if r is not None:
                xp.subtract(1, p, out=r)
        pairs.clip()


def clenshaw(xp: Any, c: tuple[float, ...], t: Array, out: Array, scratch: list[Array]) -> None:
    """out = sum_k c_k T_k(t):  b_k = c_k + 2 t b_{k+1} - b_{k+2},  out = c_0 + t b_1 - b_2."""
    b0, b1, b2 = scratch
    b1[...] = 0
    b2[...] = 0
    t *= 2
    for c_k in c[:0:-1]:
        xp.multiply(t, b1, out=b0)
        b0 -= b2
        b0 += c_k
        b0, b1, b2 = b2, b0, b1
    t *= 0.5
    xp.multiply(t, b1, out=out)
    out -= b2
    out += c[0]


@lru_cache(maxsize=64)
def angular_series(spec: s.Layer, parametrization: Parametrization, d: int) -> AngularSeries:
    """The AngularSeries of a spec for inputs of d numbers, as long as it has to be."""
    steps = program(spec, parametrization, (d,))
    check_rates(spec, parametrization, (d,))
    check_homogeneous(steps)
    degree = 8
    while True:
        degree *= 2
        k = np.arange(degree + 1)
        angles = (k + 0.5) * (pi / (degree + 1))
        values = recursion(steps, (1 + np.cos(angles)) * (pi / 2))
        cos = np.cos(k[:, None] * angles) * (2 / (degree + 1))
        p, tau = (tuple((cos @ f * np.where(k == 0, 0.5, 1.0)).tolist()) for f in values)
        between = np.linspace(0, pi, 8 * degree + 3)
        error = max(
            float(
                np.max(np.abs(np.polynomial.chebyshev.chebval(2 * between / pi - 1, c) - f))
                / max(scale, abs(float(f[0])))
            )
            for c, f, scale in zip((p, tau), recursion(steps, between), (0.5, 0.0), strict=True)
            if np.any(f != 0)
        )
        if error < TARGET_ERROR or degree >= LARGEST_DEGREE:
            return AngularSeries(steps, p, tau, error)


def recursion(steps: Program, theta: np.ndarray[Any, Any]) -> tuple[Array, Array]:
    """p and tau at the angles theta, layer by layer."""
    xp = array_namespace(theta)
    every = np.arange(theta.shape[0])
    _, coefficients = run_rows(steps, RowState(np.ones_like(theta), np.zeros_like(theta)))
    p, r, tau = np.sin(theta / 2) ** 2, np.cos(theta / 2) ** 2, np.zeros_like(theta)
    run_pairs(steps, Listing(Scratch(xp, xp.float64, theta.shape[0]), every, every, p, r, tau), coefficients)
    return p, tau


def check_homogeneous(steps: Program) -> None:
    """UnsupportedLayer unless all steps are positively homogeneous."""
    for step in steps:
        if isinstance(step, ResidualSum):
            check_homogeneous(step.branch + step.shortcut)
        elif isinstance(step, Affine) and (step.beta2 > 0 or step.rest != 0):
            raise UnsupportedLayer(
                "analytic.angular expects no biases (b_std = 0): with them, norms matter; use analytic.kernel"
            )
        elif not isinstance(step, Affine | Homogeneous):
            raise UnsupportedLayer(
                f"analytic.angular expects ReLU, LeakyReLU, Abs and Identity only, got {getattr(step, 'name', step)}: "
                "norms matter there; use analytic.kernel"
            )


@dataclass(frozen=True)
class Angular(Kernel):
    """The kernels of a bias-free homogeneous network, at a cost that does not grow with depth; built by `angular`.

    A Kernel like any other, whose `error(x)` is that of the series; and a function of the angle, `at`.
    """

    def _program(self, shape: tuple[int, ...]) -> Program:
        return (angular_series(self.spec, self.parametrization, int(np.prod(shape))),)

    def at(self, theta: Array, d: int = 1) -> Both:
        """(kappa(theta), kappa_ntk(theta)), arrays of theta's shape, 0 <= theta <= pi.

        d : number of inputs; matters only for parametrizations other than NTK.

        >>> import numpy as np, minintk as mn
        >>> a = angular(mn.Sequential(mn.Dense(512, w_std=2**0.5), mn.ReLU(), mn.Dense(1)))
        >>> [values.round(4).tolist() for values in a.at(np.array([0.0, np.pi / 3, np.pi / 2]))]
        [[1.0, 0.609, 0.3183], [2.0, 0.9423, 0.3183]]
        """
        check_floating("theta", theta)
        xp = array_namespace(theta)
        if bool(xp.any((theta < 0) | (theta > pi))):
            raise ValueError("theta expects angles between 0 and pi")
        whole = angular_series(self.spec, self.parametrization, d)
        gain = float(run_rows(whole.program, RowState(np.ones(1), np.zeros(1)))[0].q[0])
        t = xp.astype(theta, xp.float64) * (2 / pi) - 1
        values = []
        for c, scale, shift in ((whole.p, -2 * gain, gain), (whole.tau, 2 * gain, 0.0)):
            out, scratch = xp.empty_like(t), [xp.empty_like(t) for _ in range(3)]
            clenshaw(xp, c, t, out, scratch)
            values.append(xp.astype(shift + scale * out, theta.dtype))
        return Both(*values)


def angular(spec: s.Layer, parametrization: Parametrization = DEFAULT_PARAMETRIZATION) -> Angular:
    """The kernels of a bias-free network of ReLU, LeakyReLU, Abs and Identity as functions of the angle.

    UnsupportedLayer for biases and for any other activation.

    >>> import minintk as mn
    >>> deep = mn.Sequential(*[mn.Dense(512, w_std=2**0.5), mn.ReLU()] * 30, mn.Dense(1))
    >>> angular(deep).error(np.eye(3)) < 1e-12
    True
    """
    spec = s.as_sequential(spec)
    try:
        angular_series(spec, parametrization, 1)
    except ValueError as error:
        raise UnsupportedLayer(f"analytic.angular expects a fully connected network: {error}") from error
    return Angular(spec, parametrization)
