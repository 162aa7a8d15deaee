"""Dense:  y = m x W + c b          m, c: the multipliers of the parametrization

jvp     dy = m dx W + m x dW + c db
vjp     dW = m x' u,   db = c sum_N u,   dx = m u W'
gram    (u . v) * (m^2 x x' + c^2)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from minintk import spec as s
from minintk.arrays import Array
from minintk.fast.threaded_matmul import Product, joined, products, rows_product, rows_times, sum_rows
from minintk.layers.contract import Contraction, Gram, Weights, bind, gram_and_back
from minintk.layers.layout import Tensor
from minintk.spec.parametrization import Parametrization, Role, Row
from minintk.spec.shapes import Shape, Site


@dataclass(frozen=True)
class DenseJacobian:
    """Holds x : ([E], N, d) and V : ([E], d, n), with m W = r V: the multiplier sits on the smaller of W and y."""

    layer: BoundDense
    x: Array
    V: Array
    r: float

    def jvp(self, dw: Weights, dx: Array | None) -> Array:
        """dy = r dx V + m x dW + c db."""
        layer = self.layer
        dy = layer.m * (self.x @ dw[layer.W])
        if dx is not None:
            dy += self.r * (dx @ self.V)
        if layer.b is not None:
            dy += layer.c * dw[layer.b][..., None, :]
        return dy

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """dW = m x' u, db = c sum u; dx = r u V'."""
        layer = self.layer
        if dw is not None and layer.b is not None:
            dw[layer.b][...] = sum_rows(u, layer.c)
        ru = u if self.r == 1 else self.r * u
        dW = None if dw is None else Product(self.x.swapaxes(-1, -2), ru, dw[layer.W], layer.m / self.r)
        dx = None if layer.first else rows_product(ru, self.V.swapaxes(-1, -2))
        products(dW, dx)
        return None if dx is None else joined(dx.out, u)

    def gram(self, u: Array, other: DenseJacobian, v: Array, kernel: Contraction) -> Gram:
        """(u . v) * (m^2 x x' + c^2)."""
        layer = self.layer
        g = self.x @ other.x.swapaxes(-1, -2)
        g *= layer.m**2
        if layer.b is not None:
            g += layer.c**2
        return gram_and_back(self, u, other, v, kernel(u, v, g))


@dataclass(frozen=True)
class BoundDense:
    """Dense in its place: tensor names W and b (None: no bias), their rows, and whether it is first."""

    W: str
    b: str | None
    weight: Row
    bias: Row
    shape: tuple[int, int]
    first: bool

    @property
    def m(self) -> float:
        return float(self.weight.multiplier)

    @property
    def c(self) -> float:
        return float(self.bias.multiplier)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        weight = Tensor(self.W, self.shape, self.weight)
        return (weight,) if self.b is None else (weight, Tensor(self.b, self.shape[1:], self.bias))

    @property
    def out_shapes(self) -> tuple[Shape, ...]:
        return (self.shape[1:],)

    def __call__(self, w: Weights, x: Array) -> tuple[Array, DenseJacobian]:
        """y = m x W + c b."""
        W, m = w[self.W], self.m
        V, r = (m * W, 1.0) if m != 1 and x.shape[-2] > self.shape[0] else (W, m)
        row = None if self.b is None else self.c * w[self.b][..., None, :]
        return rows_times(x, V, r, row), DenseJacobian(self, x, V, r)


@bind.register
def _(layer: s.Dense, site: Site, parametrization: Parametrization, name: str) -> BoundDense:
    fan_in, fan_out = site.shape[-1], int(layer.width)
    weight = parametrization.row(Role("weight", site.place), fan_in, fan_out, float(layer.w_std))
    bias = parametrization.row(Role("bias", site.place), fan_in, fan_out, float(layer.b_std))
    if layer.b_init == "zeros":
        bias = replace(bias, std=0.0)
    b = None if layer.b_std == 0 else f"{name}.b"
    return BoundDense(f"{name}.W", b, weight, bias, (fan_in, fan_out), site.first)
