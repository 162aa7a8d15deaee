"""Compute an activation's kernel from a textbook's two formulas, in the variances and the covariance.

    kappa(q, q', k) = E phi(u) phi(u'),    kappa_dot(q, q', k) = E phi'(u) phi'(u')
    for Gaussian u, u' with E u^2 = q, E u'^2 = q', E u u' = k

The price is a textbook's precision: k is rounded before the formula is applied, which changes an angle a by eps / a.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from analytic.recursion.closed_forms import ClosedForm
from analytic.recursion.duals import nonzero
from analytic.recursion.rules import lower
from analytic.recursion.scalar_forms import Form, Numbers, nothing
from minintk.arrays import Array
from minintk.spec.layers import Activation

Formula = Callable[[Array, Array, Array], Array]
"""(q, q', k) -> E phi phi', or E phi' phi', elementwise."""


def register_dual(activation: type[Activation], kappa: Formula, kappa_dot: Formula) -> None:
    """Register two formulas for the infinite-width kernels of your own activation, instead of quadrature.

    kappa, kappa_dot : (q, q', k) -> E phi phi' and E phi' phi', elementwise on arrays of one shape, for k^2 <= q q'
    up to rounding (an arccos needs its clip).  NTK entries of nearly parallel rows have errors of about 1e-8 in
    float64, and a third of the digits in float32; for full precision at any angle, write a `ClosedForm`.  TypeError
    unless it is a class of activations.

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

    def rows(xp: Any, q: Array, k: Numbers) -> Numbers:
        """Return q, sqrt q, and sqrt v,  v = kappa(q, q, q)."""
        return q, xp.sqrt(q), xp.sqrt(nonzero(xp, kappa(q, q, q)))

    def turn(m: Any, p: Array, r: Array, one: Numbers, two: Numbers, k: Numbers) -> tuple[Array, Array]:
        """Return p' = (1 - kappa / sqrt(v v')) / 2, and the slope."""
        (q, s, root, _), (q2, s2, root2, _) = one, two
        given = m.xp.broadcast_arrays(q, q2, s * s2 * (r - p))
        return (1 - kappa(*given) / root / root2) / 2, kappa_dot(*given)

    def rule(layer: Activation, site: Any, parametrization: Any) -> tuple[ClosedForm]:
        name = type(layer).__name__
        return (ClosedForm(name, lambda xp, q: kappa(q, q, q), Form(name, nothing, nothing, (), rows, turn)),)

    lower.register(activation, rule)
