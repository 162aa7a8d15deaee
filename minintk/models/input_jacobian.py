"""The Jacobian of a network's outputs in its inputs, df/dx : (N, C, *input_shape) for each example."""

from __future__ import annotations

from dataclasses import dataclass

from minintk.arrays import Array, array_namespace
from minintk.layers.contract import LayerJacobian, Layout
from minintk.layers.norm import UNCALIBRATED


@dataclass(frozen=True, eq=False)
class InputJacobian:
    """df/dx of a network, as a linear map: saliency, adversarial examples, checks of a backward pass.

    jvp    v -> (df/dx) v       a change of the inputs to a change of the outputs
    vjp    u -> (df/dx)' u      a cotangent of the outputs to a gradient in the inputs

    outputs : (N, C).  shape : that of x, (N, *input_shape).  theta : ([E], P).  v and u may carry a leading axis K.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Dense(1), (2,), mn.Standard())
    >>> theta = np.array([3.0, -1.0])
    >>> f, J = net.linearize(theta, np.ones((4, 2)), wrt="x")
    >>> J.vjp(np.ones_like(f))[0], J.dense().shape
    (array([ 3., -1.]), (4, 1, 2))
    """

    root: LayerJacobian
    layout: Layout
    outputs: tuple[int, int]
    shape: tuple[int, ...]
    theta: Array
    coupled: bool

    def jvp(self, v: Array) -> Array:
        """(df/dx) v : ([K], [E], N, C) for v : ([K], [E], N, *input_shape)."""
        self._check("jvp(v)", v, self.shape)
        zero = array_namespace(v).zeros_like(self.theta)
        dy = self.root.jvp(self.layout.unpack(zero), v)
        return (
            array_namespace(v).zeros((*v.shape[: -len(self.shape)], *self.outputs), dtype=v.dtype) if dy is None else dy
        )

    def vjp(self, u: Array) -> Array:
        """(df/dx)' u : ([K], [E], N, *input_shape) for u : ([K], [E], N, C)."""
        self._check("vjp(u)", u, self.outputs)
        dx = self.root.vjp(u, None)
        if dx is None:
            raise TypeError("a layer's vjp returned None: return u dy/dx where site.inputs is true")
        return dx

    def dense(self) -> Array:
        """df_c(x_n)/dx_n : ([E], N, C, *input_shape), each example's outputs by its own input."""
        if self.coupled:
            raise ValueError(UNCALIBRATED)
        N, C = self.outputs
        xp, lead = array_namespace(self.theta), self.theta.shape[:-1]
        u = xp.eye(C, dtype=self.theta.dtype).reshape((C, *(1 for _ in lead), 1, C))
        dx = self.vjp(xp.broadcast_to(u, (C, *lead, N, C)))
        return xp.moveaxis(xp.broadcast_to(dx, (C, *lead, *self.shape)), 0, len(lead) + 1)

    def _check(self, name: str, a: Array, shape: tuple[int, ...]) -> None:
        array_namespace(self.theta, a)
        if tuple(a.shape[-len(shape) :]) != shape or a.ndim > len(shape) + self.theta.ndim:
            raise ValueError(f"{name} expects shape ([K], [E], {', '.join(map(str, shape))}), got {tuple(a.shape)}")
        if a.dtype != self.theta.dtype:
            raise TypeError(f"{name} expects {self.theta.dtype}, the dtype of theta, got {a.dtype}")
