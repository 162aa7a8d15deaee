"""Every law for one layer, in small networks with the layer in every place; see `minintk.testing`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, array_namespace
from minintk.layers.contract import Contraction, LayerJacobian, Tensor, Weights, bind
from minintk.models.network import Network
from minintk.spec.parametrization import Parametrization, Row
from minintk.spec.shapes import Shape, Site, out_shape
from minintk.testing.laws import check_float32, check_model


def check_layer(layer: s.Layer, shape: Sequence[int], parametrization: Parametrization | None = None) -> None:
    """Every law for small networks with this layer first, in the middle, last and as a residual branch.

    shape : of one example as it enters the layer, ``(d,)`` or ``(H, W, C)``.  AssertionError with the law that is
    broken, and with what `minintk.grade.diagnose_layer` finds: jvp, vjp or gram, which tensor, what it looks like.

    >>> import minintk as mn
    >>> check_layer(mn.Dense(4, b_std=0.5), (3,))
    >>> check_layer(mn.Flatten(), (2, 2, 3))
    """
    try:
        _laws(layer, shape, parametrization)
    except Exception as error:
        from minintk.grade.layer import diagnose_layer  # only for layers that are wrong

        said = ""
        with suppress(Exception):  # a layer may be too broken to be looked at
            said = str(diagnose_layer(layer, shape, parametrization) or "")
        if not said:
            raise
        raise AssertionError(f"{error}\n{said}") from error


def _laws(layer: s.Layer, shape: Sequence[int], parametrization: Parametrization | None) -> None:
    shape = tuple(shape)
    after = out_shape(layer, shape)
    end = [s.Flatten()] if len(after) > 1 else []
    networks = [
        s.Sequential(layer, *end, s.Dense(2)),
        s.Sequential(Shift(), layer, Shift(), *end, s.Dense(2)),
        s.Sequential(Shift(), layer, *end),
    ]
    if after == shape:
        networks.append(s.Sequential(Shift(), s.Residual(layer), *end, s.Dense(2)))
    for number, spec in enumerate(networks):
        rng = np.random.default_rng(number)
        network = Network(spec, shape, parametrization)
        x = rng.standard_normal((4, *shape))
        theta = network.init(rng, ensemble=2)
        theta += 0.5 * rng.standard_normal(theta.shape)  # away from zero-initialised biases
        check_model(network, theta, x, rng)
        check_model(network, theta[0], x[:1], rng)
        check_float32(network, theta[0], x, rng)


# --------------------------------------------- a weighted layer of any shape, to stand before the one tested


@dataclass(frozen=True)
class Shift(s.Layer):
    """y = x + b, b of the shape of one example: gives every layer after it weights that it must pass u dy/dx to."""

    weights = True


@dataclass(frozen=True)
class ShiftJacobian(LayerJacobian):
    """Holds the tensor b and the number of examples."""

    b: Tensor
    N: int

    def jvp(self, dw: Weights, dx: Array | None) -> Array:
        db = _row(dw[self.b.name], self.b.shape)
        if dx is not None:
            return db + dx
        lead = db.shape[: db.ndim - len(self.b.shape) - 1]
        return array_namespace(db).broadcast_to(db, (*lead, self.N, *self.b.shape))

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        if dw is not None:
            dw[self.b.name][...] = u.sum(axis=-1 - len(self.b.shape))
        return u

    def gram(self, u: Array, other: ShiftJacobian, v: Array, kernel: Contraction) -> Array:
        flat = [a.reshape((*a.shape[: a.ndim - len(self.b.shape)], -1)) for a in (u, v)]
        return kernel(flat[0], flat[1], 1.0)


@dataclass(frozen=True)
class BoundShift:
    """Shift in its place."""

    tensors: tuple[Tensor, ...]

    def __call__(self, w: Weights, x: Array) -> tuple[Array, ShiftJacobian]:
        b = self.tensors[0]
        return x + _row(w[b.name], b.shape), ShiftJacobian(b, x.shape[x.ndim - len(b.shape) - 1])


def _row(b: Array, shape: Shape) -> Array:
    """b : (..., *shape) with an axis of length 1 for the examples, (..., 1, *shape)."""
    return b.reshape((*b.shape[: b.ndim - len(shape)], 1, *shape))


@out_shape.register
def _(layer: Shift, shape: Shape) -> Shape:
    return shape


@bind.register
def _(layer: Shift, site: Site, parametrization: Parametrization, name: str) -> BoundShift:
    return BoundShift((Tensor(f"{name}.b", site.shape, Row(1.0, 1.0)),))
