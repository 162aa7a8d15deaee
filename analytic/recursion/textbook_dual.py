"""Register two textbook formulas for the kernels of an activation (see `analytic.recursion.closed_forms.textbook`)."""

from __future__ import annotations

from analytic.recursion.closed_forms import textbook
from analytic.recursion.rules import lower
from minintk.layers.activation import Formula
from minintk.spec.layers import Activation


def register_dual(activation: type[Activation], kappa: Formula, kappa_dot: Formula) -> None:
    """Register formulas for the infinite-width kernels of a new activation, to use in place of quadrature.

    kappa, kappa_dot : functions of (q, q', k) that return E phi(u) phi(u') and E phi'(u) phi'(u'), elementwise on
    arrays of one shape.  Rounding can make k^2 exceed q q', so clip the argument of an arccos.  Equal rows have k = q.
    For nearly parallel rows, relative errors of the NTK can be about 1e-8 in float64 and 3e-4 in float32, which
    `Kernel.error` does not include.  Raises TypeError unless `activation` is a subclass of `Activation`.

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
        raise TypeError(f"register_dual expects a class of activations, of mn.Activation, got {activation!r}")
    lower.register(activation, lambda layer, *_: (textbook(type(layer).__name__, kappa, kappa_dot),))
