"""Compute Dense:  y = m x W + c b          m, c: the multipliers of the parametrization

jvp     dy = m dx W + m x dW + c db
vjp     dW = m x' u,   db = c sum_N u,   dx = m u W'
gram    (u . v) * (S_W m^2 x1 x2' + S_b c^2)          x1, x2: two batches; S: the scales of J S J', 1 in J J'
"""

from __future__ import annotations

from dataclasses import dataclass

from minintk import spec as s
from minintk.arrays import Array
from minintk.layers.contract import Contraction, LayerJacobian, Tensor, WeightAndBias, Weights, bind, weight_and_bias
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Site


@dataclass(frozen=True)
class DenseJacobian(LayerJacobian):
    """The Jacobian of Dense at x : ([E], N, d) and W : ([E], d, n)."""

    layer: BoundDense
    x: Array
    W: Array

    def jvp(self, dw: Weights, dx: Array | None) -> Array:
        """Compute dy = m dx W + m x dW + c db."""
        p = self.layer.parameters
        dy = self.x @ dw[p.W.name]
        if dx is not None:
            dy += dx @ self.W
        dy *= p.m
        if p.b is not None:
            dy += p.c * dw[p.b.name][..., None, :]
        return dy

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """Compute dW = m x' u,   db = c sum_N u,   dx = m u W'."""
        p = self.layer.parameters
        if dw is not None:
            dw[p.W.name][...] = self.x.swapaxes(-1, -2) @ (p.m * u)
            if p.b is not None:
                dw[p.b.name][...] = p.c * u.sum(axis=-2)
        return None if p.ends_sweep else p.m * (u @ self.W.swapaxes(-1, -2))

    def gram(self, u: Array, other: DenseJacobian, v: Array, kernel: Contraction) -> Array:
        """Compute (u . v) * (S_W m^2 x1 x2' + S_b c^2)."""
        w2, b2 = self.layer.parameters.squares(kernel)
        g = self.x @ other.x.swapaxes(-1, -2)
        g *= w2
        g += b2
        return kernel(u, v, g)


@dataclass(frozen=True)
class BoundDense:
    """A Dense layer bound to a network."""

    parameters: WeightAndBias

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.parameters.tensors

    def __call__(self, w: Weights, x: Array) -> tuple[Array, DenseJacobian]:
        """Compute y = m x W + c b."""
        p = self.parameters
        W = w[p.W.name]
        y = x @ W
        y *= p.m
        if p.b is not None:
            y += p.c * w[p.b.name][..., None, :]
        return y, DenseJacobian(self, x, W)


@bind.register
def _(layer: s.Dense, site: Site, parametrization: Parametrization, name: str) -> BoundDense:
    shape = (site.shape[-1], int(layer.width))
    return BoundDense(weight_and_bias(layer, site, parametrization, name, shape))
