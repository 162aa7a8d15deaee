"""Compute duals of a steep phi for nearly parallel and nearly opposite pairs, where the series needs too many terms.

By Price's theorem, dc'/dc = (q / v) S(c) with S(c) = E phi'(u) phi'(u').  For c >= 0, we smooth phi':

    G(m) = E phi'(m + sqrt(q (1 - c)) w),   S(c) = E G(m)^2,   S(-c) = E G(m) G(-m),   w ~ N(0, 1), m ~ N(0, q c)

Let R be the mean of S over [0, p] with p = (1 - c)/2 near c = 1, and over [0, r] with r = (1 + c)/2 near c = -1.  Then

    p' = (q / v) p R(p)                        p' = p'(-1) - (q / v) r R(r)

S and R are smooth functions of log(1 + p / p_0) with p_0 = .1 / q, so we interpolate them in this variable.  All rows
have the same variances q and v = E phi(u)^2, and p'(-1) is p' at c = -1.  (Price 1958.)
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log1p, log2, sqrt
from typing import Any, NamedTuple

import numpy as np

from analytic.recursion.interpolation import LARGEST_DEGREE, chebyshev, interpolated, legendre
from analytic.recursion.state import Pairs
from minintk.arrays import Array, to_library
from minintk.layers.activation import Pointwise
from minintk.threads import single_threaded_blas

NODES = 10
"""Gauss-Legendre nodes per panel."""
END = 8.5
"""The z and w axes end at a density of 1e-16."""

SMALL = 1e-13
"""The series is used for pairs whose omitted terms sum to less than this."""
ROUNDING = 1.5e-14
"""Relative error per unit of s, because pre-activations of size s are rounded, and phi changes over a width of 1."""


def graded(at: Array, scale: float, nodes: int) -> tuple[Array, Array]:
    """Return quadrature nodes and weights (M, K) for E f(w); panel widths grow from `scale` / 4 near `at` to 1."""
    x, weights = legendre(nodes)
    near = scale / 4 * 2.0 ** np.arange(max(1, ceil(log2(8 * END / scale))))
    plain = np.broadcast_to(np.arange(-END, END + 1), (at.shape[0], int(2 * END) + 1))
    ends = np.concatenate((at[:, None] + np.concatenate((-near[::-1], [0.0], near)), plain), axis=1)
    ends = np.sort(ends.clip(-END, END), axis=1)
    middle, half = (ends[:, 1:] + ends[:, :-1]) / 2, (ends[:, 1:] - ends[:, :-1]) / 2
    w = (middle[..., None] + half[..., None] * x).reshape((at.shape[0], -1))
    return w, (half[..., None] * weights).reshape(w.shape) * np.exp(-w * w / 2) / sqrt(2 * np.pi)


def slopes(phi: Pointwise, s: float, p: float, nodes: int = NODES) -> tuple[float, float]:
    """Return S(c) and S(-c) at c = 1 - 2p, for s = sqrt(q) and a phi' that changes near 0 over a width of about 1."""
    along, across = s * sqrt(1 - 2 * p), s * sqrt(2 * p)
    z, weights = graded(np.zeros(1), min(2.0, 2 / along), nodes)
    m = along * z[0]
    w, inner = graded(-m / max(across, 1e-300), min(2.0, 2 / max(across, 1e-300)), nodes)
    G = np.sum(inner * phi.derivative(np, m[:, None] + across * w), axis=1)
    return float(weights[0] @ (G * G)), float(weights[0] @ (G * G[::-1]))


@lru_cache(maxsize=64)
def coefficients(phi: Pointwise, s: float, p0: float, top: float) -> Array:
    """Return the Chebyshev coefficients of R and S near c = 1, then near c = -1, for p or r up to `top`: (K, 4)."""
    (x, w), high = legendre(40), log1p(top / p0)

    def means(e: Array) -> Array:
        """Return R(p) = (1/p) int_0^log(e) S p0 exp(t) dt at p = p0 (e - 1), with S evaluated at p0 (exp(t) - 1)."""
        at = np.log(e)[:, None] * (1 + x) / 2
        values = interpolated(S, at.reshape(-1), 0.0, high).reshape((*at.shape, 2))
        scale = np.log(e) / 2 / np.maximum(np.expm1(np.log(e)), 1e-300)
        return np.sum(values * (w * np.exp(at))[..., None], axis=1) * scale[:, None]

    with single_threaded_blas():
        S = chebyshev(np, lambda e: np.array([slopes(phi, s, p0 * (one - 1)) for one in e]), 0.0, high)
        R = chebyshev(np, means, 0.0, high)
    part = np.zeros((max(len(R), len(S)), 4))
    part[: len(R), ::2], part[: len(S), 1::2] = R, S
    return part


class Steep(NamedTuple):
    """Duals of phi near c = 1 and near c = -1, for s = sqrt(q).   gain : q / v.

    p0 : scale of p.   top : upper limit of p and r.   opposite : p' at c = -1.   error : estimated relative error.
    """

    phi: Pointwise
    s: float
    gain: float
    p0: float
    top: float
    opposite: float
    error: float

    @staticmethod
    def of(phi: Pointwise, s: float, v: float, left: float) -> Steep | None:
        """Return the duals if `left` exceeds 100 SMALL and phi is smooth and grows slowly, otherwise None.

        left : the sum of the terms that the series omits at c = 1, divided by v = E phi(s z)^2.
        """
        if left <= 100 * SMALL or phi.kinks or not v > 0:
            return None
        gain, p0, top = s * s / v, 0.1 / (s * s), (1 - (SMALL / left) ** (1 / LARGEST_DEGREE)) / 2
        z, weights = graded(np.zeros(1), min(2.0, 2 / s), NODES)
        ends, kernel = phi.phi(np, s * np.array([-END, END])), phi.phi(np, s * z[0])
        total, cut = float(weights[0] @ kernel**2), float(np.max(ends**2)) * np.exp(-(END**2) / 2)
        if not (abs(total - v) + cut < 1e-12 * v):
            return None
        few = np.minimum(np.array([1e-3, 1.0, 30.0]) * p0, top)
        off = [abs(a / b - 1) for p in few for a, b in zip(slopes(phi, s, p), slopes(phi, s, p, NODES + 4))]
        opposite = (1 - float(weights[0] @ (kernel * kernel[::-1])) / v) / 2
        return Steep(phi, s, gain, p0, top, opposite, max(SMALL, *off) + s * ROUNDING)

    def ends(self, pairs: Pairs) -> list[tuple[Any, Array, Array | None]]:
        """Return positions, p and tau of the pairs near c = 1, and positions, r and tau of the pairs near c = -1."""
        xp, p, tau = pairs.xp, pairs.p, pairs.tau
        r = 1 - p if pairs.r is None else pairs.r
        places = [(x, xp.nonzero(x < self.top)) for x in (p, r)]
        return [(at, x[at], None if tau is None else tau[at]) for x, at in places]

    def replace(self, pairs: Pairs, ends: list[tuple[Any, Array, Array | None]], odd: bool) -> None:
        """Overwrite the results of the series for the pairs in `ends`.   odd : True if phi is odd."""
        xp, p, r = pairs.xp, pairs.p, pairs.r
        for k, (at, x, tau) in enumerate(ends):
            if not x.shape[0]:
                continue
            part = self.gain * coefficients(self.phi, self.s, self.p0, self.top)[:, 2 * k : 2 * k + 2]
            found = interpolated(to_library(part, xp), xp.log1p(x / self.p0), 0.0, log1p(self.top / self.p0))
            moved = x * found[:, 0]
            p[at] = moved if k == 0 else self.opposite - moved
            if r is not None:
                r[at] = moved if k == 1 and odd else 1 - p[at]
            if tau is not None and pairs.tau is not None:
                pairs.tau[at] = tau * found[:, 1]
