"""The laws every model obeys, for the tests of this package and of layers and models from outside.

Reading order:

    laws         the laws as functions: adjoint, derivative, gram, kernel, ensemble, blocks, float32
    tolerance    how far two results may be apart: what rounding explains, and no more
    layer        every law for one layer, first, in the middle, last and as a residual branch

A layer from outside
--------------------

It is a frozen dataclass and two registered meanings, its shape and its finite meaning; a third, `analytic.lower`,
gives it an infinite width.  Here is one, y = g x with a trained g for each feature:

>>> from dataclasses import dataclass
>>> import numpy as np, minintk as mn
>>> from minintk.layers.contract import LayerJacobian, Tensor, bind
>>> from minintk.spec.parametrization import Row
>>> from minintk.spec.shapes import out_shape
>>> @dataclass(frozen=True)
... class Scale(mn.spec.Layer):                                     # what it is
...     '''y = g x.'''
...     weights = True                                              # it owns parameters
>>> _ = out_shape.register(Scale, lambda layer, shape: shape)       # the shape of one example after it
>>> @dataclass(frozen=True)
... class ScaleJacobian(LayerJacobian):                             # its derivatives, from what it saved
...     g: object
...     x: object
...     tensor: Tensor
...     def jvp(self, dw, dx):                                      # dy = x dg + g dx
...         dy = self.x * dw[self.tensor.name][..., None, :]
...         return dy if dx is None else dy + self.g[..., None, :] * dx
...     def vjp(self, u, dw):                                       # dg = sum_N x u,  dx = g u
...         if dw is not None:
...             dw[self.tensor.name][...] = (self.x * u).sum(axis=-2)
...         return self.g[..., None, :] * u
...     def gram(self, u, other, v, kernel):                        # sum_i S (u_i x_i) (v_i x'_i)
...         return kernel(u * self.x, v * other.x, kernel.scale(self.tensor))
>>> @dataclass(frozen=True)
... class BoundScale:                                               # it in its place
...     tensors: tuple
...     def __call__(self, w, x):
...         g = w[self.tensors[0].name]
...         return g[..., None, :] * x, ScaleJacobian(g, x, self.tensors[0])
>>> def bind_scale(layer, site, parametrization, name):
...     return BoundScale((Tensor(f"{name}.g", site.shape, Row(1.0, 1.0)),))
>>> _ = bind.register(Scale, bind_scale)
>>> check_layer(Scale(), (3,))

A mistake in any of it is found.  With x dg forgotten in jvp:

>>> ScaleJacobian.jvp = lambda self, dw, dx: self.g[..., None, :] * (0 * self.x if dx is None else dx)
>>> check_layer(Scale(), (3,))                                      # doctest: +ELLIPSIS
Traceback (most recent call last):
    ...
AssertionError: adjoint <u, J v> = <J' u, v>: ... off by ..., rounding explains ...

An activation is less: a frozen dataclass, phi and phi'.  Its kernels of infinite width follow by quadrature:

>>> from minintk.layers.activation import Pointwise, pointwise
>>> @dataclass(frozen=True)
... class Squared(mn.spec.Activation):
...     '''phi(x) = x^2.'''
>>> _ = pointwise.register(Squared, lambda layer: Pointwise(lambda xp, x: x**2, lambda xp, x: 2 * x))
>>> check_layer(Squared(), (3,))
"""

from minintk.testing.laws import (
    check_adjoint,
    check_blocks,
    check_derivative,
    check_ensemble,
    check_float32,
    check_gram,
    check_kernel,
    check_model,
    check_stacked,
)
from minintk.testing.layer import check_layer
from minintk.testing.tolerance import assert_close, roundings

__all__ = [
    "assert_close", "check_adjoint", "check_blocks", "check_derivative", "check_ensemble", "check_float32",
    "check_gram", "check_kernel", "check_layer", "check_model", "check_stacked", "roundings",
]  # fmt: skip
