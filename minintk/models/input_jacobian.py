"""Apply the Jacobian of a network with respect to its inputs, df/dx, as a linear map."""

from __future__ import annotations

from dataclasses import dataclass

from minintk.arrays import Array, array_namespace, check_finite_by
from minintk.layers.contract import LayerJacobian, Layout
from minintk.layers.norm import UNCALIBRATED
from minintk.models.jacobian import check_argument


@dataclass(frozen=True, eq=False)
class InputJacobian:
    """The Jacobian df/dx of a network as a linear map, e.g. for saliency and adversarial examples.

    jvp    v -> (df/dx) v       from a change of the inputs to a change of the outputs
    vjp    u -> (df/dx)' u      from a cotangent of the outputs to a gradient with respect to the inputs

    outputs : (N, C).  shape : (N, *input_shape).  theta : ([E], P).  v and u can have a leading axis K, for K vectors.

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
        """Return (df/dx) v : ([K], [E], N, C) for v : ([K], [E], N, *input_shape)."""
        check_argument("v", v, self.theta, self.shape, self.theta.ndim)
        check_finite_by(v, "v", v)
        xp, lead = array_namespace(v), v.shape[: -len(self.shape)] or self.theta.shape[:-1]
        still = xp.broadcast_to(xp.zeros_like(self.theta), (*lead, self.theta.shape[-1]))
        dy = self.root.jvp(self.layout.unpack(still), v)
        return xp.zeros((*lead, *self.outputs), dtype=v.dtype) if dy is None else dy

    def vjp(self, u: Array) -> Array:
        """Return (df/dx)' u : ([K], [E], N, *input_shape) for u : ([K], [E], N, C)."""
        check_argument("u", u, self.theta, self.outputs, self.theta.ndim)
        check_finite_by(u, "u", u)
        dx = self.root.vjp(u, None)
        if dx is None:
            raise TypeError("a layer's vjp returned None: return u dy/dx where site.inputs is true")
        return dx

    def dense(self) -> Array:
        """Return df_c(x_n)/dx_n : ([E], N, C, *input_shape), for every output c of every example n."""
        if self.coupled:
            raise ValueError(UNCALIBRATED)
        N, C = self.outputs
        xp, lead = array_namespace(self.theta), self.theta.shape[:-1]
        u = xp.eye(C, dtype=self.theta.dtype).reshape((C, *(1 for _ in lead), 1, C))
        dx = self.vjp(xp.broadcast_to(u, (C, *lead, N, C)))
        return xp.moveaxis(xp.broadcast_to(dx, (C, *lead, *self.shape)), 0, len(lead) + 1)
