"""Find critical initialisations of fully connected networks: w_std and b_std for which chi_1 = 1.

Let V(q) = E phi(u)^2 and D(q) = E phi'(u)^2 for u ~ N(0, q).  An activation and a Dense layer then give Q = w^2 V + b^2
and chi_1 = w^2 D.  Hence q parametrises the edge of chaos:

    w^2 = 1 / D(q)        b^2 = q - V(q) / D(q)        (Schoenholz et al. 2017, section 3; Hayou et al. 2019)
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, isfinite, log, nan, sqrt
from typing import Any, NamedTuple

import numpy as np

from analytic.kernels import DEFAULT_PARAMETRIZATION
from analytic.phases.maps import Maps
from analytic.recursion.rules import lower
from minintk import spec as s
from minintk.spec.shapes import Site
from minintk.validate import number

SMALLEST, LARGEST, STEP, NOTHING = 1e-6, 1e6, 0.25, 1e-9
"""Range of variances to search, step of the search in log q, and relative distance from the edge treated as 0."""


class Critical(NamedTuple):
    """w_std and b_std of all Dense layers, and the resulting variance q* of pre-activations."""

    w_std: float
    b_std: float
    q: float


def critical(activation: s.Activation, *, b_std: float | None = None, q: float | None = None) -> Critical:
    """Return w_std, b_std and q* of a deep network of Dense layers and `activation` at the edge of chaos.

    b_std : select the point on the edge with this bias and a stable q*: |dQ / dq| <= 1.
    q : select the point on the edge with this variance of pre-activations.
    Without either, select the point on the edge at which dQ/dq = 1, so that E phi(u) phi''(u) = 0.  GELU and Swish have
    such a point at q > 0.  Tanh, erf and sine have theirs at b_std = q = 0, and the ReLU family has it at b_std = 0 and
    any q (q = 1 is returned).  Without `q`, only q = 0 and 1e-6 <= q <= 1e6 are searched.  Raises TypeError unless
    `activation` has a derivative, and ValueError if b_std and q are both given or no such point is found.  Sources:
    Schoenholz et al. 2017 (tanh); He et al. 2015 (ReLU); Roberts, Yaida and Hanin 2022, chapter 5 (GELU, Swish).

    >>> import minintk as mn
    >>> [round(value, 9) for value in critical(mn.ReLU())]
    [1.414213562, 0.0, 1.0]
    >>> at = critical(mn.Tanh(), b_std=0.05)
    >>> round(at.w_std, 6), round(at.q, 6)
    (1.122539, 0.153692)
    """
    if not isinstance(activation, s.Activation) or isinstance(activation, s.Sign):
        raise TypeError(f"critical expects an activation with a derivative, such as mn.Tanh(), got {activation!r}")
    if b_std is not None and q is not None:
        raise ValueError(f"critical expects b_std or q, got both, {b_std!r} and {q!r}: leave one out")
    edge = Edge(Maps(lower(activation, Site((1,), first=False), DEFAULT_PARAMETRIZATION)))
    if q is not None:
        return edge.at(number("q", q), activation)
    if b_std is not None:
        return edge.with_bias(number("b_std", b_std, zero=True), activation)
    return edge.doubly(activation)


class Edge:
    """An activation's edge of chaos as a curve in q.   maps : the activation's maps, Q = V and chi = D."""

    def __init__(self, maps: Maps) -> None:
        self.maps = maps

    def bias2(self, q: float) -> float:
        """Return b^2 / q = 1 - V / (q D)."""
        V, D, _ = self.maps.variance(q)
        return 1 - V / D / q if isfinite(V) and D > 0 else -np.inf

    def keeps(self, q: float) -> float:
        """Return dQ/dq - 1 = V' / D - 1 on the edge."""
        V, D, _ = self.maps.variance(q)
        return self.maps.chi_q(q) * V / D / q - 1 if isfinite(V) and D > 0 else -np.inf

    def at(self, q: float, activation: s.Activation) -> Critical:
        """Return the point on the edge with variance q."""
        share = self.bias2(q)
        if not share > -NOTHING:
            raise ValueError(
                f"{activation!r} has no edge of chaos at q = {q:g}: with chi_1 = 1 the weights alone give a variance "
                f"of {q * (1 - share):.4g}; take another q"
            )
        return Critical(1 / sqrt(self.maps.variance(q)[1]), 0.0 if share < 1e-14 else sqrt(q * share), q)

    def with_bias(self, b: float, activation: s.Activation) -> Critical:
        """Return the stable point on the edge with this bias and the smallest q; for b = 0, `start` if stable."""
        if b == 0 and (at := self.start()) and (at.q or at.w_std**2 * self.maps.variance(1e-4)[0] <= 1e-4):  # attracts
            return at
        for q in self.roots(lambda q: self.bias2(q) - b * b / q):
            if abs(self.keeps(q) + 1) <= 1 + NOTHING:
                return self.at(q, activation)._replace(b_std=b)
        raise ValueError(
            f"{activation!r} has no stable variance on the edge of chaos with b_std = {b:g}: take another b_std, or q"
        )

    def doubly(self, activation: s.Activation) -> Critical:
        """Return the point on the edge at which dQ/dq = 1, or else `start`."""
        for q in self.roots(self.keeps, self.rough):
            if self.bias2(q) > -NOTHING:
                return self.at(q, activation)
        if (start := self.start()) is not None:
            return start
        raise ValueError(f"{activation!r} has no point with dQ/dq = chi_1 = 1: give b_std or q, of the edge of chaos")

    def start(self) -> Critical | None:
        """Return the point with b = 0: for q -> 0 or, if b = 0 at every q (ReLU), at q = 1; None if there is none."""
        if any(abs(self.bias2(q)) > NOTHING for q in (1e-14, 1e-12)):
            return None
        q = 1.0 if all(abs(self.bias2(q)) <= NOTHING for q in (0.1, 1.0, 10.0)) else 0.0
        return Critical(1 / sqrt(self.maps.variance(q or 1e-16)[1]), 0.0, q)

    def rough(self, grid: list[float], k: int) -> float:
        """Estimate `keeps` at grid[k] by finite differences of log V along the grid, at a tenth of the cost."""
        V, D, _ = self.maps.variance(grid[k])
        ends = grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)]
        with np.errstate(invalid="ignore", divide="ignore"):
            slope = np.subtract(*np.log([self.maps.variance(q)[0] for q in ends])) / log(ends[0] / ends[1])
            return float(slope * V / D / grid[k] - 1)

    def roots(self, f: Any, rough: Any = None) -> Iterator[float]:
        """Yield the roots of f in ascending order, searching where f (or rough) changes sign between grid points."""
        from scipy.optimize import brentq

        grid = np.exp(np.append(np.arange(log(SMALLEST), log(LARGEST), STEP), log(LARGEST))).tolist()
        here = nan
        for k, q in enumerate(grid):
            before, here = here, f(q) if rough is None else rough(grid, k)
            if not (isfinite(before + here) and before * here < 0):
                continue
            for out in (0,) if rough is None else (0, 1):  # finite differences can shift a root to the next cell
                ends = log(grid[max(k - 1 - out, 0)]), log(grid[min(k + out, len(grid) - 1)])
                low, high = (f(exp(end)) for end in ends)
                if low * high < 0 and min(map(abs, (low, high, before, here))) > NOTHING:
                    yield exp(brentq(lambda u: f(exp(u)), *ends, xtol=1e-14, rtol=1e-14))
                    break
