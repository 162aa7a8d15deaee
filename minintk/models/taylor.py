"""Expand a network along theta_0 + t d as a power series in t, and differentiate the series with respect to d.

    x(t) = x_0 + x_1 t + ... + x_k t^k  is the input of a layer with weights w_0 + t d, and y(t) is its output

linear in weights and input (Dense, convolutions)   y_j = L(w_0) x_j + L(d) x_{j-1}   if y = L(w) x
activations                                         y = phi(x) as a series (`minintk.models.power_series`)
no weights, (piecewise) linear (pools, ...)         y_j = A x_j, j >= 1, if y = A x + constant near x_0
LayerNorm                                           y = r c,  c = x - mean(x),  r = (mean(c^2) + eps)^(-1/2)

A network with kinks is expanded on its smooth piece around theta_0.  The derivative of a truncated series is a
`LayerJacobian` whose tangents and cotangents are lists of the coefficients 1 ... k, because only these depend on d.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce, singledispatch
from typing import Any

from minintk.arrays import Array, array_namespace
from minintk.layers.activation import BoundActivation
from minintk.layers.branches import BoundBranches, SumJacobian
from minintk.layers.combine import BoundChain, BoundReshape, ChainJacobian
from minintk.layers.contract import Bound, Contraction, LayerJacobian, Weights
from minintk.layers.conv import BoundConv
from minintk.layers.dense import BoundDense
from minintk.layers.dropout import BoundDropout
from minintk.layers.norm import UNCALIBRATED, BoundBatchNorm, BoundLayerNorm
from minintk.layers.pool import BoundAvgPool, BoundGlobalAvgPool, BoundMaxPool
from minintk.models.power_series import Series, add, expanded, inverse_root, product, scaled, times
from minintk.spec.shapes import UnsupportedLayer


@singledispatch
def expand(layer: Bound, w: Weights, d: Weights, x: Series) -> tuple[Series, LayerJacobian]:
    """Return a bound layer's output series y for weights w + t d and input series x, and the derivative of y."""
    name = type(layer).__name__.removeprefix("Bound")
    raise UnsupportedLayer(f"{name} has no Taylor expansion: register minintk.models.taylor.expand for it")


def along(layers: Bound, w: Weights, d: Weights, x: Array, order: int) -> tuple[Series, Sum]:
    """Return (y, J), where f(w + t d) = sum_j y_j t^j for j up to `order`, and J = d(sum_j y_j)/dd."""
    y, J = expand(layers, w, d, [x, *(None for _ in range(order))])
    return y, Sum(J, order)


@dataclass(frozen=True)
class Sum(LayerJacobian):
    """The Jacobian of f = sum_j y_j with respect to d: y_0 is constant, and every other y_j has the cotangent u."""

    J: Any  # a LayerJacobian with lists as tangents and cotangents
    order: int

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        return reduce(add, self.J.jvp(dw, [None] * self.order))

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        self.J.vjp([u] * self.order, dw)
        return None

    def gram(self, u: Array, other: Sum, v: Array, kernel: Contraction) -> Array | float:
        us: Series = [u] * self.order
        vs = us if u is v and self.order == other.order else [v] * other.order
        return self.J.gram(us, other.J, vs, kernel)


# ------------------------------------------------------------------- linear in the weights and in the input


@dataclass(frozen=True)
class BilinearSeries(LayerJacobian):
    """y_j = L(w) x_j + L(d) x_{j-1}.  y_0 also includes the bias at w, and y_1 the bias at d.

    jvp   dy_j = L(w) dx_j + L(d) dx_{j-1} + L(dw) x_{j-1}
    vjp   dw = sum_j (L(.) x_{j-1})' u_j,   dx_j = L(w)' u_j + L(d)' u_{j+1}
    gram  sum over i, j of the layer's own grams, for the inputs x_{j-1}, and x_{i-1} of the other batch

    plain : the layer without its bias.  at_w, at_d : the layer's Jacobians at w and d.  inputs : for j =
    1 ... k, the layer's Jacobian at x_{j-1}, or None if x_{j-1} = 0.  Only the Jacobian at x_0 includes the bias.
    """

    plain: Any
    w: Weights
    d: Weights
    at_w: LayerJacobian
    at_d: LayerJacobian
    inputs: tuple[Any, ...]
    names: tuple[str, ...]

    def jvp(self, dw: Weights, dx: Any) -> Any:
        moved = [None if J is None else J.jvp(dw, None) for J in self.inputs]
        below, here = (
            [None if c is None else self.plain(w, c)[0] for c in part]
            for w, part in ((self.d, (None, *dx[:-1])), (self.w, dx))
        )
        return [add(add(a, b), c) for a, b, c in zip(moved, below, here, strict=True)]

    def vjp(self, u: Any, dw: Weights | None) -> Any:
        if dw is not None:
            self.inputs[0].vjp(u[0], dw)
            for J, uj in zip(self.inputs[1:], u[1:], strict=True):
                if J is not None and uj is not None:
                    W = self.names[0]
                    more = {W: array_namespace(uj).zeros_like(dw[W])}
                    J.vjp(uj, more)
                    dw[W] += more[W]
        if self.plain.parameters.ends_sweep:
            return None
        here, above = (
            [None if c is None else J.vjp(c, None) for c in part]
            for J, part in ((self.at_w, u), (self.at_d, (*u[1:], None)))
        )
        return [add(a, b) for a, b in zip(here, above, strict=True)]

    def gram(self, u: Any, other: BilinearSeries, v: Any, kernel: Contraction) -> Array | float:
        total: Array | float = 0.0
        for j, J in enumerate(self.inputs):
            for i, K in enumerate(other.inputs):
                if J is None or K is None or u[j] is None or v[i] is None:
                    continue
                one, two = (J, K) if i == j else (_without_bias(J), _without_bias(K))  # only the first has a bias
                total = total + one.gram(u[j], two, v[i], kernel)
        return total


def _without_bias(J: Any) -> Any:
    return replace(J, layer=_with(J.layer, b=None))


def _with(layer: Any, **changes: Any) -> Any:
    """Replace fields of the layer's parameters.  b=None drops the bias, and ends_sweep=True drops u dy/dx."""
    return replace(layer, parameters=replace(layer.parameters, **changes))


@expand.register(BoundDense)
@expand.register(BoundConv)
def _(layer: Any, w: Weights, d: Weights, x: Series) -> tuple[Series, BilinearSeries]:
    plain = _with(layer, b=None)
    alone = _with(layer, ends_sweep=True)
    x0: Any = x[0]
    y0, at_w = layer(w, x0)
    y1, first = alone(d, x0)
    at_d = replace(first, layer=plain)
    y: Series = [y0, y1 if x[1] is None else y1 + plain(w, x[1])[0]]
    inputs: list[Any] = [first]
    for now, before in zip(x[2:], x[1:-1], strict=True):
        c, J = (None, None) if before is None else _with(alone, b=None)(d, before)
        y.append(c if now is None else add(c, plain(w, now)[0]))
        inputs.append(J)
    return y, BilinearSeries(plain, w, d, at_w, at_d, tuple(inputs), tuple(t.name for t in layer.tensors))


# ------------------------------------------------------------------------------- no weights: activations


@dataclass(frozen=True)
class MultiplicationSeries(LayerJacobian):
    """dy = p dx, a product of series.  Its transpose, dx_i = sum_{j >= i} p_{j-i} u_j, multiplies reversed lists."""

    p: Series

    def jvp(self, dw: Weights, dx: Any) -> Any:
        return times(self.p, dx)

    def vjp(self, u: Any, dw: Weights | None) -> Any:
        return times(self.p, u[::-1])[::-1]


@expand.register
def _(layer: BoundActivation, w: Weights, d: Weights, x: Series) -> tuple[Series, MultiplicationSeries]:
    y, p = expanded(layer.layer, array_namespace(x[0]), x)
    return y, MultiplicationSeries(p)


# --------------------------------------------------------------------- no weights: linear, or linear by pieces


@dataclass(frozen=True)
class EachSeries(LayerJacobian):
    """y_j = A x_j for j >= 1, where A is the layer's Jacobian at x_0."""

    A: LayerJacobian

    def jvp(self, dw: Weights, dx: Any) -> Any:
        return [None if c is None else self.A.jvp(dw, c) for c in dx]

    def vjp(self, u: Any, dw: Weights | None) -> Any:
        return [None if c is None else self.A.vjp(c, None) for c in u]


@expand.register(BoundReshape)
@expand.register(BoundAvgPool)
@expand.register(BoundGlobalAvgPool)
@expand.register(BoundMaxPool)
@expand.register(BoundBatchNorm)
@expand.register(BoundDropout)
def _(layer: Any, w: Weights, d: Weights, x: Series) -> tuple[Series, EachSeries]:
    if isinstance(layer, BoundBatchNorm) and f"{layer.name}.mean" not in w:
        raise UnsupportedLayer(UNCALIBRATED)
    y0, A = layer(w, x[0])
    J = EachSeries(A)
    return [y0, *J.jvp({}, x[1:])], J


# --------------------------------------------------------------------------------------------- LayerNorm


@dataclass(frozen=True)
class NormSeries(LayerJacobian):
    """dy = r (dx - mean(dx) - y mean(y dx)), with products of series.  Its transpose acts on reversed lists."""

    y: Series
    r: Series
    axes: tuple[int, ...]

    def jvp(self, dw: Weights, dx: Any) -> Any:
        mean = [scaled(-1, _mean(c, self.axes)) for c in times(self.y, dx)]
        pulled = times(self.y, mean)
        return times(self.r, [add(_centred(c, self.axes), p) for c, p in zip(dx, pulled, strict=True)])

    def vjp(self, u: Any, dw: Weights | None) -> Any:
        """Apply the transpose.  r is constant along `axes`, so it commutes with means over `axes`."""
        return self.jvp({}, u[::-1])[::-1]


def _mean(a: Array | None, axes: tuple[int, ...]) -> Array | None:
    return None if a is None else array_namespace(a).mean(a, axis=axes, keepdims=True)


def _centred(a: Array | None, axes: tuple[int, ...]) -> Array | None:
    return None if a is None else a - _mean(a, axes)


@expand.register
def _(layer: BoundLayerNorm, w: Weights, d: Weights, x: Series) -> tuple[Series, NormSeries]:
    y0, _ = layer(w, x[0])  # raises if the variance is 0
    c = [_centred(a, layer.axes) for a in x]
    variance: Series = [_mean(a, layer.axes) for a in times(c, c)]
    r = inverse_root([variance[0] + layer.eps, *variance[1:]])
    y = [y0, *(product(r, c, j) for j in range(1, len(x)))]
    return y, NormSeries(y[:-1], r[:-1], layer.axes)


# -------------------------------------------------------------------------------------- combinations


@expand.register
def _(layer: BoundChain, w: Weights, d: Weights, x: Series) -> tuple[Series, ChainJacobian]:
    links = []
    for inner in layer.layers:
        x, J = expand(inner, w, d, x)
        links.append(J)
    return x, ChainJacobian(layer.layers, tuple(links))


@dataclass(frozen=True)
class SumSeries(SumJacobian):
    """The derivatives of the branches, summed coefficient by coefficient."""

    @staticmethod
    def add(a: Any, b: Any) -> Any:
        return [add(p, q) for p, q in zip(a, b, strict=True)]


@expand.register
def _(layer: BoundBranches, w: Weights, d: Weights, x: Series) -> tuple[Series, SumSeries]:
    if layer.kind is not SumJacobian:
        kind = layer.kind.__name__.removesuffix("Jacobian")
        remedy = "take mn.Linearized(net, theta0), its first order"
        raise UnsupportedLayer(f"mn.Taylor goes through branches of a Sum or Residual, got those of {kind}: {remedy}")
    y, parts = zip(*(expand(inner, w, d, x) for inner in layer.layers), strict=True)
    return reduce(SumSeries.add, y), SumSeries(layer, parts)
