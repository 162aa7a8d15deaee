"""How layers combine: Sequential composes, branches are added, multiplied or joined, Flatten and Identity pass on.

Sequential      y = l_k(... l_1(x))        dy runs forwards, u backwards, the grams add up
Residual, Sum   y = b_1(x) + ... + b_k(x)       dy = sum_i db_i                       u_i = u
Product         y = b_1(x) ... b_k(x)           dy = sum_i db_i prod_{j != i} b_j     u_i = u prod_{j != i} b_j
Concat          y = (b_1(x), ..., b_k(x))       dy = (db_1, ..., db_k)                u = (u_1, ..., u_k)
branches        dx = sum_i u_i db_i/dx, and the grams, of u_i, add up
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from operator import add, mul
from typing import Any

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, array_namespace
from minintk.layers.contract import Bound, Contraction, LayerJacobian, Tensor, Weights, bind
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, Site, has_weights, out_shape, sites


def place(layer: s.Layer, site: Site, parametrization: Parametrization, name: str) -> Bound:
    """`bind`, for a layer inside another; TypeError where it owns tensors and does not say so, or the reverse.

    Its neighbours would not know that weights come before them, and stop their backward sweep.
    """
    bound = bind(layer, site, parametrization, name)
    if bool(bound.tensors) != has_weights(layer):
        kind, owned = type(layer).__name__, ", ".join(t.name for t in bound.tensors) or "no tensors"
        raise TypeError(f"{kind} owns {owned}: write `weights = {bool(bound.tensors)}` into class {kind}")
    return bound


def check_gram(layer: Bound, J: LayerJacobian) -> None:
    """TypeError for a layer that owns weights and has no gram: the kernel would be without them."""
    if layer.tensors and type(J).gram is LayerJacobian.gram:
        owned = ", ".join(t.name for t in layer.tensors)
        raise TypeError(f"{type(J).__name__} has no gram, but its layer owns {owned}: write gram(u, other, v, kernel)")


# ---------------------------------------------------------------------------------------- Sequential


@dataclass(frozen=True)
class ChainJacobian(LayerJacobian):
    """The Jacobians of the layers, in order."""

    layers: tuple[Bound, ...]
    links: tuple[LayerJacobian, ...]

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """dy_i = J_i dy_{i-1}, from the first layer to the last."""
        for J in self.links:
            dx = J.jvp(dw, dx)
        return dx

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """u_{i-1} = J_i' u_i, from the last layer to the first that owns weights."""
        back: Array | None = u
        for i in reversed(range(len(self.links))):
            if back is None:
                self.check_stop(i)
                break
            back = self.links[i].vjp(back, dw)
        return back

    def gram(self, u: Array, other: ChainJacobian, v: Array, kernel: Contraction) -> Array | float:
        """sum_i gram_i(u_i, v_i)."""
        return self.gram_and_back(u, other, v, kernel)[0]

    def gram_and_back(
        self, u: Array, other: ChainJacobian, v: Array, kernel: Contraction
    ) -> tuple[Array | float, Array | None, Array | None]:
        """(sum_i gram_i(u_i, v_i), u_0, v_0)."""
        total: Array | float = 0.0
        du: Array | None = u
        dv: Array | None = v
        for i in reversed(range(len(self.links))):
            if du is None or dv is None:
                self.check_stop(i)
                break
            check_gram(self.layers[i], self.links[i])
            G, du, dv = self.links[i].gram_and_back(du, other.links[i], dv, kernel)
            total = total + G
        return total, du, dv

    def check_stop(self, i: int) -> None:
        """TypeError where a cotangent ends at layer i + 1 and layers before it own weights."""
        if owned := [t.name for layer in self.layers[: i + 1] for t in layer.tensors]:
            kind = type(self.links[i + 1]).__name__
            raise TypeError(f"{kind}.vjp returned None, but {', '.join(owned)} come before it: return u dy/dx")


@dataclass(frozen=True)
class BoundChain:
    """Layers in their places."""

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


# ------------------------------------------------------------------------------------------ branches


@dataclass(frozen=True)
class BranchesJacobian(LayerJacobian):
    """The Jacobians of branches b_i on the same x; how they make up y is said by `join`, and backwards by `split`."""

    layer: BoundBranches
    parts: tuple[LayerJacobian, ...]

    def join(self, db: list[Any]) -> Any:
        """dy from (db_1, ..., db_k), at least one of which is not None."""
        raise NotImplementedError  # by each kind of branches

    def split(self, u: Any) -> list[Any]:
        """u dy/db_1, ..., u dy/db_k."""
        return [u for _ in self.parts]

    @staticmethod
    def add(a: Any, b: Any) -> Any:
        """a + b of two tangents or cotangents."""
        return a + b

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """dy = sum_i dy/db_i db_i."""
        db = [J.jvp(dw, dx) for J in self.parts]
        return None if all(one is None for one in db) else self.join(db)

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """dx = sum_i (u dy/db_i) db_i/dx."""
        return self.total([J.vjp(one, dw) for J, one in zip(self.parts, self.split(u), strict=True)])

    def gram(self, u: Array, other: BranchesJacobian, v: Array, kernel: Contraction) -> Array | float:
        """sum_i gram_i(u dy/db_i, v dy'/db_i)."""
        return self.gram_and_back(u, other, v, kernel)[0]

    def gram_and_back(
        self, u: Array, other: BranchesJacobian, v: Array, kernel: Contraction
    ) -> tuple[Array | float, Array | None, Array | None]:
        """(sum_i gram_i, u dy/dx, v dy'/dx)."""
        us = self.split(u)
        vs = us if self is other and u is v else other.split(v)
        found = []
        for inner, J, K, one, two in zip(self.layer.layers, self.parts, other.parts, us, vs, strict=True):
            check_gram(inner, J)
            found.append(J.gram_and_back(one, K, two, kernel))
        grams, du, dv = (list(column) for column in zip(*found, strict=True))
        same = all(a is b for a, b in zip(du, dv, strict=True))
        back = self.total(du)
        return sum(grams), back, back if same else self.total(dv)

    def total(self, parts: list[Array | None]) -> Array | None:
        """The sum of cotangents; None (no weights come before) stays None."""
        return None if any(one is None for one in parts) else reduce(self.add, parts)


@dataclass(frozen=True)
class BoundBranches:
    """Branches in their places, and their names."""

    layers: tuple[Bound, ...]
    names: tuple[str, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(t for layer in self.layers for t in layer.tensors)

    def __call__(self, w: Weights, x: Array) -> tuple[Array, BranchesJacobian]:
        b, parts = zip(*(layer(w, x) for layer in self.layers), strict=True)
        return self.joined(list(b), parts)

    def joined(self, b: list[Array], parts: tuple[LayerJacobian, ...]) -> tuple[Array, BranchesJacobian]:
        """(y, J) from the branches' outputs and Jacobians."""
        raise NotImplementedError  # by each kind of branches


@dataclass(frozen=True)
class SumJacobian(BranchesJacobian):
    """Of y = b_1 + ... + b_k; u dy/db_i = u."""

    def join(self, db: list[Any]) -> Any:
        """dy = db_1 + ... + db_k."""
        return reduce(self.add, [one for one in db if one is not None])


@dataclass(frozen=True)
class BoundSum(BoundBranches):
    """Sum in its place, or Residual, whose branches are called "branch" and "shortcut"."""

    def joined(self, b: list[Array], parts: tuple[LayerJacobian, ...]) -> tuple[Array, SumJacobian]:
        """y = b_1 + ... + b_k."""
        return reduce(add, b), SumJacobian(self, parts)


@dataclass(frozen=True)
class ProductJacobian(BranchesJacobian):
    """Of y = b_1 ... b_k.   others : for each i, the product of all b_j but b_i."""

    others: tuple[Array, ...]

    def join(self, db: list[Any]) -> Any:
        """dy = sum_i db_i prod_{j != i} b_j."""
        return reduce(self.add, [one * b for one, b in zip(db, self.others, strict=True) if one is not None])

    def split(self, u: Any) -> list[Any]:
        """u prod_{j != i} b_j."""
        return [u * b for b in self.others]


@dataclass(frozen=True)
class BoundProduct(BoundBranches):
    """Product in its place."""

    def joined(self, b: list[Array], parts: tuple[LayerJacobian, ...]) -> tuple[Array, ProductJacobian]:
        """y = b_1 ... b_k."""
        one = array_namespace(*b).ones_like(b[0])
        others = tuple(reduce(mul, b[:i] + b[i + 1 :], one) for i in range(len(b)))
        return reduce(mul, b), ProductJacobian(self, parts, others)


@dataclass(frozen=True)
class ConcatJacobian(BranchesJacobian):
    """Of y = (b_1, ..., b_k).   places : the features of each b_i in y."""

    places: tuple[slice, ...]

    def join(self, db: list[Any]) -> Any:
        """dy = (db_1, ..., db_k), with zeros where there is no change."""
        xp, known = array_namespace(*db), next(one for one in db if one is not None)
        zeros = ((*known.shape[:-1], at.stop - at.start) for at in self.places)
        return side_by_side([xp.zeros(n, dtype=known.dtype) if a is None else a for a, n in zip(db, zeros)])

    def split(self, u: Any) -> list[Any]:
        """The features of u that belong to b_i."""
        return [u[..., at] for at in self.places]


@dataclass(frozen=True)
class BoundConcat(BoundBranches):
    """Concat in its place."""

    def joined(self, b: list[Array], parts: tuple[LayerJacobian, ...]) -> tuple[Array, ConcatJacobian]:
        """y = (b_1, ..., b_k)."""
        ends = list(accumulate((one.shape[-1] for one in b), initial=0))
        return side_by_side(b), ConcatJacobian(self, parts, tuple(map(slice, ends, ends[1:])))


def side_by_side(parts: list[Array]) -> Array:
    """Arrays joined along the last axis; their leading axes broadcast."""
    xp = array_namespace(*parts)
    lead = np.broadcast_shapes(*(a.shape[:-1] for a in parts))
    return xp.concat([xp.broadcast_to(a, (*lead, a.shape[-1])) for a in parts], axis=-1)


KINDS = {s.Sum: BoundSum, s.Product: BoundProduct, s.Concat: BoundConcat}


@bind.register
def _(layer: s.Branches, site: Site, parametrization: Parametrization, name: str) -> BoundBranches:
    inner = tuple(place(child, site, parametrization, f"{name}.{i}") for i, child in enumerate(layer))
    return KINDS[type(layer)](inner, tuple(map(str, range(len(inner)))))


@bind.register
def _(layer: s.Residual, site: Site, parametrization: Parametrization, name: str) -> BoundSum:
    branch = place(layer.branch, site.branch, parametrization, f"{name}.branch")
    return BoundSum((branch, place(layer.shortcut, site, parametrization, f"{name}.shortcut")), ("branch", "shortcut"))


# ------------------------------------------------------------------------------- Flatten and Identity


@dataclass(frozen=True)
class ReshapeJacobian(LayerJacobian):
    """y = x in another shape; the derivatives are the same reshaping, forwards and backwards."""

    before: Shape
    after: Shape

    def jvp(self, dw: Weights, dx: Array | None) -> Any:  # None only for None
        return None if dx is None else dx.reshape((*dx.shape[: dx.ndim - len(self.before)], *self.after))

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        return u.reshape((*u.shape[: u.ndim - len(self.after)], *self.before))


@dataclass(frozen=True)
class BoundReshape:
    """A change of shape in its place."""

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
