"""An activation's kernel from the two formulas that a textbook gives, in the variances and the covariance.

    kappa(q, q', k) = E phi(u) phi(u'),    kappa_dot(q, q', k) = E phi'(u) phi'(u')
    for Gaussian u, u' with E u^2 = q, E u'^2 = q', E u u' = k

Two formulas instead of a Dual step in p, r and tau, which is what the activations of the library are.  The price is a
textbook's precision: k is rounded before the formula sees it, which moves an angle a by eps / a.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from analytic.vectors.rules import lower
from analytic.vectors.state import Dual, Pairs, RowState, columns
from minintk.arrays import Array, array_namespace
from minintk.spec.layers import Activation

Formula = Callable[[Array, Array, Array], Array]
"""(q, q', k) -> E phi phi', or E phi' phi', elementwise."""


class TextbookRow(NamedTuple):
    """Coefficients of rows; left . right of each pair is  q: q of one row (with `one`), scale: sqrt(q q'),
    over: 1 / sqrt(v v'),  slope: sqrt(q q' / (v v'))."""

    q: Array
    one: Array
    scale: Array
    over: Array
    slope: Array


@dataclass(frozen=True)
class TextbookDual(Dual):
    """K' = kappa(q, q', K),   Theta' = Theta kappa_dot(q, q', K)."""

    kappa: Formula
    kappa_dot: Formula

    def rows(self, rows: RowState) -> tuple[RowState, TextbookRow]:
        xp, q = array_namespace(rows.q), rows.q
        after = RowState(self.kappa(q, q, q), rows.theta * self.kappa_dot(q, q, q), rows.error)
        return after, TextbookRow(
            q=columns(xp, q),
            one=columns(xp, xp.ones_like(q)),
            scale=columns(xp, xp.sqrt(q)),
            over=columns(xp, 1 / after.scale),
            slope=columns(xp, rows.scale / after.scale),
        )

    def pairs(self, pairs: Pairs, row: TextbookRow) -> None:
        """p' = (1 - K' / sqrt(v v')) / 2, with k = sqrt(q q') (1 - 2 p), from the smaller of p and r."""
        xp, p, r = pairs.xp, pairs.p, pairs.r
        with pairs.borrow(4) as (q, q2, k, w):
            pairs.dot(row.q, row.one, q)
            pairs.dot(row.one, row.q, q2)
            pairs.dot(row.scale, row.scale, w)
            xp.multiply(1 - 2 * p if r is None else r - p, w, out=k)
            if pairs.tau is not None:
                pairs.tau *= self.kappa_dot(q, q2, k)
                pairs.tau *= pairs.dot(row.slope, row.slope, w)
            c = self.kappa(q, q2, k) * pairs.dot(row.over, row.over, w)
            p[...] = (1 - c) / 2
            if r is not None:
                r[...] = (1 + c) / 2
        pairs.clip()


def register_dual(activation: type[Activation], kappa: Formula, kappa_dot: Formula) -> None:
    """Give an activation of your own its kernels at infinite width by two formulas, in place of quadrature.

    kappa, kappa_dot : (q, q', k) -> E phi phi' and E phi' phi', elementwise on arrays of one shape, for k^2 <= q q'
    up to rounding (an arccos needs its clip).  NTK entries of nearly parallel rows are right to about 1e-8 in float64,
    a third of the digits in float32; for rounding at any angle, write a `Dual` step.  TypeError for what is no class of
    activations.

    >>> import numpy as np, minintk as mn
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Square(mn.Activation):
    ...     '''phi(x) = x^2.'''
    >>> register_dual(Square, lambda q, q2, k: q * q2 + 2 * k**2, lambda q, q2, k: 4 * k)
    >>> import analytic as an
    >>> an.kernel(mn.Sequential(mn.Dense(8), Square(), mn.Dense(1))).both(np.array([[1.0], [2.0]])).ntk
    array([[  7.,  28.],
           [ 28., 112.]])
    """
    if not (isinstance(activation, type) and issubclass(activation, Activation)):
        raise TypeError(
            f"register_dual expects a class of activations, a subclass of mn.Activation, got {activation!r}"
        )

    def rule(layer: Activation, site: Any, parametrization: Any) -> tuple[TextbookDual]:
        return (TextbookDual(type(layer).__name__, kappa, kappa_dot),)

    lower.register(activation, rule)
