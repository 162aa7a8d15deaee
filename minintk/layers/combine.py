"""Compose layers, y = l_k(... l_1(x)), and define Flatten and Identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minintk import spec as s
from minintk.arrays import Array
from minintk.layers.contract import Bound, Contraction, LayerJacobian, Tensor, Weights, bind
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, Site, has_weights, out_shape, sites


def place(layer: s.Layer, site: Site, parametrization: Parametrization, name: str) -> Bound:
    """Bind an inner layer.  Raise TypeError if its class declares `weights` wrongly: vjp could then stop early."""
    bound = bind(layer, site, parametrization, name)
    if bool(bound.tensors) != has_weights(layer):
        kind, owned = type(layer).__name__, ", ".join(t.name for t in bound.tensors) or "no tensors"
        raise TypeError(f"{kind} owns {owned}: write `weights = {bool(bound.tensors)}` into class {kind}")
    return bound


def check_gram(layer: Bound, J: LayerJacobian) -> None:
    """Raise TypeError for a layer with weights but no `gram`, because the kernel would omit its weights."""
    if layer.tensors and type(J).gram is LayerJacobian.gram:
        owned = ", ".join(t.name for t in layer.tensors)
        raise TypeError(f"{type(J).__name__} has no gram, but its layer owns {owned}: write gram(u, other, v, kernel)")


# ---------------------------------------------------------------------------------------- Sequential


@dataclass(frozen=True)
class ChainJacobian(LayerJacobian):
    """The Jacobian of a chain of layers.   links : the Jacobians of the layers, in order."""

    layers: tuple[Bound, ...]
    links: tuple[LayerJacobian, ...]

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """Compute dy_i = J_i dy_{i-1}, from the first layer to the last."""
        for J in self.links:
            dx = J.jvp(dw, dx)
        return dx

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """Compute u_{i-1} = J_i' u_i, from the last layer to the first that owns weights, or to x if dx is needed."""
        for i in reversed(range(len(self.links))):
            if (back := self.links[i].vjp(u, dw)) is None:
                self.check_stop(i)
                return None
            u = back
        return u

    def gram(self, u: Array, other: ChainJacobian, v: Array, kernel: Contraction) -> Array | float:
        """Compute sum_i gram_i(u_i, v_i)."""
        return self.gram_and_back(u, other, v, kernel)[0]

    def gram_and_back(
        self, u: Array, other: ChainJacobian, v: Array, kernel: Contraction
    ) -> tuple[Array | float, Array | None, Array | None]:
        """Return (sum_i gram_i(u_i, v_i), u_0, v_0), with None for cotangents that are not needed."""
        total: Array | float = 0.0
        du: Array | None = u
        dv: Array | None = v
        for i in reversed(range(len(self.links))):
            if du is None or dv is None:
                self.check_stop(i + 1)
                break
            check_gram(self.layers[i], self.links[i])
            G, du, dv = self.links[i].gram_and_back(du, other.links[i], dv, kernel)
            total = total + G
        return total, du, dv

    def check_stop(self, i: int) -> None:
        """Raise TypeError if the cotangent stops at layer i although earlier layers own weights."""
        if owned := [t.name for layer in self.layers[:i] for t in layer.tensors]:
            kind = type(self.links[i]).__name__
            raise TypeError(f"{kind}.vjp returned None, but {', '.join(owned)} come before it: return u dy/dx")


@dataclass(frozen=True)
class BoundChain:
    """A chain of layers bound to a network."""

    layers: tuple[Bound, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(t for layer in self.layers for t in layer.tensors)

    def __call__(self, w: Weights, x: Array) -> tuple[Array, ChainJacobian]:
        links = []
        for layer in self.layers:
            x, J = layer(w, x)
            links.append(J)
        return x, ChainJacobian(self.layers, tuple(links))


@bind.register
def _(layer: s.Sequential, site: Site, parametrization: Parametrization, name: str) -> BoundChain:
    prefix = f"{name}." if name else ""
    inner = enumerate(sites(layer.layers, site))
    return BoundChain(tuple(place(child, at, parametrization, f"{prefix}{i}") for i, (child, at) in inner))


# ------------------------------------------------------------------------------- Flatten and Identity


@dataclass(frozen=True)
class ReshapeJacobian(LayerJacobian):
    """The Jacobian of a change of shape.  It reshapes tangents as the layer reshapes x, and cotangents back."""

    before: Shape
    after: Shape

    def jvp(self, dw: Weights, dx: Array | None) -> Any:  # returns None only if dx is None
        return None if dx is None else dx.reshape((*dx.shape[: dx.ndim - len(self.before)], *self.after))

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        return u.reshape((*u.shape[: u.ndim - len(self.after)], *self.before))


@dataclass(frozen=True)
class BoundReshape:
    """A change of shape bound to a network."""

    before: Shape
    after: Shape
    tensors: tuple[Tensor, ...] = ()

    def __call__(self, w: Weights, x: Array) -> tuple[Array, ReshapeJacobian]:
        J = ReshapeJacobian(self.before, self.after)
        return J.jvp(w, x), J


@bind.register
def _(layer: s.Flatten, site: Site, parametrization: Parametrization, name: str) -> BoundReshape:
    return BoundReshape(site.shape, out_shape(layer, site.shape))


@bind.register
def _(layer: s.Identity, site: Site, parametrization: Parametrization, name: str) -> BoundReshape:
    return BoundReshape(site.shape, site.shape)
