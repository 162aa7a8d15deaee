"""Represent a block by three maps: of a variance q, of an angle at equal variances, and of the tangent kernel.

    q'     = Q(q)                   K'(x, x)
    p'     = P(q, p)                p = (1 - c) / 2, c = K(x, x') / q
    Theta' = chi Theta + A          chi = dK'(x, x') / dK(x, x'); A and chi depend on the pair, which can be (x, x)

The kernel recursion computes all three maps.  In the last map, the slope chi multiplies Theta.  For an activation, chi
is E phi'(u) phi'(u'), the derivative of E phi(u) phi(u') with respect to E u u' (Price's theorem).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf, isfinite, log

import numpy as np

from analytic.recursion.requests import Examples
from analytic.recursion.state import Listing, Program, RowState, Scratch, run_pairs, run_rows
from analytic.recursion.unit_rows import flat, square_norms
from minintk.arrays import Host

HALF_WIDTH, NODES = 0.05, 9
"""Half width in log q and number of nodes of the interpolation that gives Q', with an error of about 1e-13."""


@dataclass(frozen=True)
class Maps:
    """Evaluate the three maps of a block's steps."""

    program: Program

    def variance(self, q: float) -> tuple[float, float, float]:
        """Return Q(q), chi at equal inputs and A(x, x), or infinities if a variance overflows."""
        return _variance(self.program, q)

    def log_gain(self, q: float) -> float:
        """Return log(Q(q) / q)."""
        after = self.variance(q)[0]
        return log(after / q) if after > 0 else -inf

    def chi_q(self, q: float) -> float:
        """Return dlog Q / dlog q, which is dQ/dq at a fixed point, from a Chebyshev interpolation."""
        t = np.cos(np.pi * (np.arange(NODES) + 0.5) / NODES)
        values = [self.log_gain(q * exp(HALF_WIDTH * u)) for u in t]
        series = np.polynomial.chebyshev.Chebyshev.fit(t, values, NODES - 1, domain=[-1, 1])
        return 1 + float(series.deriv()(0.0)) / HALF_WIDTH

    def pairs(self, q: float, p: Host) -> tuple[Host, Host, Host]:
        """Return P(q, p), chi and A(x, x') at variance q, for p : (K,) between 0 and 1."""
        tau = np.stack([np.zeros_like(p), np.full_like(p, 0.5 * max(q, 1.0) / q)])  # Theta / (2 q), as in `_variance`
        twice = np.stack([p, p])
        scratch, index = Scratch(np, np.dtype(np.float64), twice.size), np.zeros(twice.size, dtype=np.int64)
        rows, coefficients = run_rows(self.program, RowState(np.array([q, q]), np.zeros(2)))
        state = Listing(scratch, index, index + 1, twice.ravel(), 1 - twice.ravel(), tau.ravel())
        run_pairs(self.program, state, coefficients)
        theta = 2 * float(rows.q[0]) * np.asarray(state.tau).reshape(2, -1)
        return state.p[: p.size], (theta[1] - theta[0]) / max(q, 1.0), theta[0]


def roundings(program: Program, inputs: Examples) -> float:
    """Return the amplified rounding error of angles: max over rows of eps sum_l (s_{l+1} ... s_L)^1/2, s = dc'/dc."""
    x, xp = flat(inputs.x[0]), inputs.xp
    q, n = square_norms(xp, (x,)) / x.shape[1], x.shape[0]
    total = 0 * q
    for step in program:
        rows = step.rows(RowState(xp.concatenate([q, q]), xp.concatenate([q, 0 * q])))[0]
        q = rows.q[:n]
        total = 1 + total * xp.sqrt((rows.theta[:n] - rows.theta[n:]) / xp.where(q > 0, q, 1.0))
    return float(xp.finfo(inputs.dtype).eps) * float(xp.max(total) if n else 0.0)


@lru_cache(maxsize=4096)
def _variance(program: Program, q: float) -> tuple[float, float, float]:
    rows = RowState(np.array([q, q]), np.array([0.0, max(q, 1.0)]))  # for tiny q, Theta = q would be lost in rounding
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            after = run_rows(program, rows)[0]
    except FloatingPointError:  # raised by a quadrature
        return inf, inf, inf
    found = float(after.q[0]), float(after.theta[1] - after.theta[0]) / max(q, 1.0), float(after.theta[0])
    return found if all(map(isfinite, found)) else (inf, inf, inf)
