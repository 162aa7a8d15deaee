"""Dense:  y = m x W + c b          m, c: the multipliers of the parametrization

jvp     dy = m dx W + m x dW + c db
vjp     dW = m x' u,   db = c sum_N u,   dx = m u W'
gram    (u . v) * (m^2 x x' + c^2)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from minintk import spec as s
from minintk.arrays import Array, array_namespace, matmul_into
from minintk.finite import Contraction, Gram, Weights, bind, gram_and_back
from minintk.layout import Tensor
from minintk.parametrization import Parametrization, Role, Row
from minintk.structure import Shape, Site
from minintk.threads import blas_is_held, cores, inside, parallel


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
        if dw is not None:
            dW = dw[layer.W]
            product(self.x.swapaxes(-1, -2), ru, dW)
            if self.r != layer.m:
                dW *= layer.m / self.r
        return None if layer.first else rows_matmul(ru, self.V.swapaxes(-1, -2))

    def gram(self, u: Array, other: DenseJacobian, v: Array, kernel: Contraction) -> Gram:
        """(u . v) * (m^2 x x' + c^2)."""
        layer = self.layer
        g = self.x @ other.x.swapaxes(-1, -2)
        g *= layer.m**2
        if layer.b is not None:
            g += layer.c**2
        return gram_and_back(self, u, other, v, kernel(u, v, g))


def sum_rows(u: Array, c: float) -> Array:
    """c sum_N u : (..., n), as a product with a row of c's: several times faster than a reduction over axis -2."""
    row = array_namespace(u).full((1, u.shape[-2]), c, dtype=u.dtype)
    return (row @ u)[..., 0, :]


def rows_matmul(a: Array, b: Array) -> Array:
    """a @ b; one product over all leading axes of a where b has none, instead of one for each."""
    if b.ndim > 2 or a.ndim == 1:
        return a @ b
    rows = a if a.ndim == 2 else a.reshape((-1, a.shape[-1]))
    if worth_sharing(rows, b):
        out = array_namespace(rows).empty((rows.shape[0], b.shape[1]), dtype=rows.dtype)
        product(rows, b, out)
    else:
        out = rows @ b
    return out if a.ndim == 2 else out.reshape((*a.shape[:-1], b.shape[-1]))


def worth_sharing(a: Array, b: Array) -> bool:
    """Whether the cores should share out a @ b: it is large, and BLAS is held at one thread."""
    return blas_is_held() and a.ndim == b.ndim == 2 and a.shape[0] * a.shape[1] * b.shape[1] >= WORTH and not inside()


def product(a: Array, b: Array, out: Array) -> None:
    """out = a @ b, shared out over the cores by its longer side where that is worth it."""
    if not worth_sharing(a, b):
        matmul_into(a, b, out)
        return
    (m, n), count = out.shape, cores()

    def work(i: int) -> None:
        at = slice(i * max(m, n) // count, (i + 1) * max(m, n) // count)
        matmul_into(*((a[at], b, out[at]) if m >= n else (a, b[:, at], out[:, at])))

    parallel(work, range(count))


WORTH = 2**24
"""Multiplications below which one core is done before a second has started."""


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
        y = rows_matmul(x, V)
        if r != 1:
            y *= r
        if self.b is not None:
            y += self.c * w[self.b][..., None, :]
        return y, DenseJacobian(self, x, V, r)


@bind.register
def _(layer: s.Dense, site: Site, parametrization: Parametrization, name: str) -> BoundDense:
    fan_in, fan_out = site.shape[-1], int(layer.width)
    weight = parametrization.row(Role("weight", site.place), fan_in, fan_out, float(layer.w_std))
    bias = parametrization.row(Role("bias", site.place), fan_in, fan_out, float(layer.b_std))
    if layer.b_init == "zeros":
        bias = replace(bias, std=0.0)
    b = None if layer.b_std == 0 else f"{name}.b"
    return BoundDense(f"{name}.W", b, weight, bias, (fan_in, fan_out), site.first)
