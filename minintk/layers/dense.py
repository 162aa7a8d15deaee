"""Dense:  y = m x W + c b          m, c: the multipliers of the parametrization

jvp     dy = m dx W + m x dW + c db
vjp     dW = m x' u,   db = c sum_N u,   dx = m u W'
gram    (u . v) * (m^2 x x' + c^2)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from minintk import spec as s
from minintk.arrays import Array, array_namespace, matmul_into, scratch
from minintk.finite import Contraction, Gram, Weights, bind, gram_and_back
from minintk.layout import Tensor
from minintk.parametrization import Parametrization, Role, Row
from minintk.structure import Shape, Site
from minintk.threads import free, share


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
            product(self.x.swapaxes(-1, -2), ru, dw[layer.W], layer.m / self.r)
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


def rows_matmul(a: Array, b: Array, factor: float = 1.0, row: Array | None = None) -> Array:
    """factor a @ b + row; one product over all leading axes of a where b has none, instead of one for each."""
    rows = a.reshape((-1, a.shape[-1])) if b.ndim == 2 else a
    if worth_sharing(rows, b):
        out = array_namespace(rows).empty((rows.shape[0], b.shape[1]), dtype=rows.dtype)
        product(rows, b, out, factor, row)
    else:
        out = rows @ b
        finish(out, factor, row)
    return out.reshape((*a.shape[:-1], b.shape[-1])) if b.ndim == 2 else out


def product(a: Array, b: Array, out: Array, factor: float = 1.0, row: Array | None = None) -> None:
    """out = factor a @ b + row, shared out over the cores by the longer side where that is worth it."""
    if not worth_sharing(a, b):
        matmul_into(a, b, out)
        finish(out, factor, row)
        return
    m, n = out.shape

    def work(at: slice) -> None:
        p, q = (at, slice(None)) if m >= n else (slice(None), at)
        if m <= FEW and b.strides[0] < b.strides[1]:  # b = W', for few rows (W u')' is a third faster than u W'
            turned = scratch(out, out[p, q].shape[::-1])
            matmul_into(b[:, q].T, a[p].T, turned)
            out[p, q] = turned.T
        else:
            matmul_into(a[p], b[:, q], out[p, q])
        finish(out[p, q], factor, None if row is None else row[:, q])

    share(work, max(m, n))


def finish(out: Array, factor: float, row: Array | None) -> None:
    """out = factor out + row, in place."""
    if factor != 1:
        out *= factor
    if row is not None:
        out += row


def worth_sharing(a: Array, b: Array) -> bool:
    """Whether the cores should share out a @ b: it is large, and they are free."""
    return free() and a.ndim == b.ndim == 2 and a.shape[0] * a.shape[1] * b.shape[1] >= WORTH


WORTH = 2**23
"""Multiplications below which one core is done before a second has started."""

FEW = 64
"""Rows of a product that cost less to turn than OpenBLAS loses on them."""


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
        return rows_matmul(x, V, r, row), DenseJacobian(self, x, V, r)


@bind.register
def _(layer: s.Dense, site: Site, parametrization: Parametrization, name: str) -> BoundDense:
    fan_in, fan_out = site.shape[-1], int(layer.width)
    weight = parametrization.row(Role("weight", site.place), fan_in, fan_out, float(layer.w_std))
    bias = parametrization.row(Role("bias", site.place), fan_in, fan_out, float(layer.b_std))
    if layer.b_init == "zeros":
        bias = replace(bias, std=0.0)
    b = None if layer.b_std == 0 else f"{name}.b"
    return BoundDense(f"{name}.W", b, weight, bias, (fan_in, fan_out), site.first)
