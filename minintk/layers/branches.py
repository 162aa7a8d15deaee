"""Combine branches of one input x: Residual and Sum add them, Product multiplies them, Concat concatenates them.

Residual, Sum   y = b_1(x) + ... + b_k(x)       dy = sum_i db_i                       u_i = u
Product         y = b_1(x) ... b_k(x)           dy = sum_i db_i prod_{j != i} b_j     u_i = u prod_{j != i} b_j
Concat          y = (b_1(x), ..., b_k(x))       dy = (db_1, ..., db_k)                u = (u_1, ..., u_k)
all             dx = sum_i u_i db_i/dx, and the gram is the sum of the branches' grams with u_i
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from operator import add, mul
from typing import Any, Self

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, array_namespace
from minintk.layers.combine import check_gram, place
from minintk.layers.contract import Bound, Contraction, LayerJacobian, Tensor, Weights, bind
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Site


@dataclass(frozen=True)
class BoundBranches:
    """The bound branches, their names, and the class of the Jacobian, which combines the branches' outputs."""

    layers: tuple[Bound, ...]
    names: tuple[str, ...]
    kind: type[BranchesJacobian]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(t for layer in self.layers for t in layer.tensors)

    def __call__(self, w: Weights, x: Array) -> tuple[Array, BranchesJacobian]:
        b, parts = zip(*(layer(w, x) for layer in self.layers), strict=True)
        return self.kind.of(self, list(b), parts)


@dataclass(frozen=True)
class BranchesJacobian(LayerJacobian, ABC):
    """The Jacobians of the branches.  `of` combines outputs, `join` combines tangents, `split` splits cotangents."""

    layer: BoundBranches
    parts: tuple[LayerJacobian, ...]

    @classmethod
    @abstractmethod
    def of(cls, layer: BoundBranches, b: list[Array], parts: tuple[LayerJacobian, ...]) -> tuple[Array, Self]:
        """Return (y, J) from the branches' outputs and Jacobians."""

    @abstractmethod
    def join(self, db: list[Any]) -> Any:
        """Return dy from (db_1, ..., db_k), at least one of which is not None."""

    def split(self, u: Any) -> list[Any]:
        """Return u_i = u dy/db_i for each branch."""
        return [u for _ in self.parts]

    @staticmethod
    def add(a: Any, b: Any) -> Any:
        """Return a + b for two tangents or two cotangents."""
        return a + b

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """Compute dy = sum_i dy/db_i db_i."""
        db = [J.jvp(dw, dx) for J in self.parts]
        return None if all(one is None for one in db) else self.join(db)

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """Compute dx = sum_i u_i db_i/dx."""
        return self.total([J.vjp(one, dw) for J, one in zip(self.parts, self.split(u), strict=True)])

    def gram(self, u: Array, other: BranchesJacobian, v: Array, kernel: Contraction) -> Array | float:
        """Compute sum_i gram_i(u_i, v_i)."""
        return self.gram_and_back(u, other, v, kernel)[0]

    def gram_and_back(
        self, u: Array, other: BranchesJacobian, v: Array, kernel: Contraction
    ) -> tuple[Array | float, Array | None, Array | None]:
        """Return (sum_i gram_i(u_i, v_i), u dy/dx, v dy'/dx'), where y' is the output of `other` at x'."""
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
        """Sum the branches' cotangents.  Return None if one of them is None, e.g. if no earlier layer has weights."""
        return None if any(one is None for one in parts) else reduce(self.add, parts)


@dataclass(frozen=True)
class SumJacobian(BranchesJacobian):
    """The Jacobian of y = b_1 + ... + b_k."""

    @classmethod
    def of(cls, layer: BoundBranches, b: list[Array], parts: tuple[LayerJacobian, ...]) -> tuple[Array, Self]:
        return reduce(add, b), cls(layer, parts)

    def join(self, db: list[Any]) -> Any:
        """Compute dy = db_1 + ... + db_k."""
        return reduce(self.add, [one for one in db if one is not None])


@dataclass(frozen=True)
class ProductJacobian(BranchesJacobian):
    """The Jacobian of y = b_1 ... b_k.   others : for each i, the product of all b_j with j != i."""

    others: tuple[Array, ...]

    @classmethod
    def of(cls, layer: BoundBranches, b: list[Array], parts: tuple[LayerJacobian, ...]) -> tuple[Array, Self]:
        one = array_namespace(*b).ones_like(b[0])
        return reduce(mul, b), cls(layer, parts, tuple(reduce(mul, b[:i] + b[i + 1 :], one) for i in range(len(b))))

    def join(self, db: list[Any]) -> Any:
        """Compute dy = sum_i db_i prod_{j != i} b_j."""
        return reduce(add, [one * b for one, b in zip(db, self.others, strict=True) if one is not None])

    def split(self, u: Any) -> list[Any]:
        """Compute u_i = u prod_{j != i} b_j."""
        return [u * b for b in self.others]


@dataclass(frozen=True)
class ConcatJacobian(BranchesJacobian):
    """The Jacobian of y = (b_1, ..., b_k).   places : for each b_i, the slice of its features in y."""

    places: tuple[slice, ...]

    @classmethod
    def of(cls, layer: BoundBranches, b: list[Array], parts: tuple[LayerJacobian, ...]) -> tuple[Array, Self]:
        ends = list(accumulate((one.shape[-1] for one in b), initial=0))
        return side_by_side(b), cls(layer, parts, tuple(map(slice, ends, ends[1:])))

    def join(self, db: list[Any]) -> Any:
        """Compute dy = (db_1, ..., db_k), with zeros for None."""
        known = next(one for one in db if one is not None)
        xp = array_namespace(known)
        zeros = ((*known.shape[:-1], at.stop - at.start) for at in self.places)
        return side_by_side([xp.zeros(n, dtype=known.dtype) if a is None else a for a, n in zip(db, zeros)])

    def split(self, u: Any) -> list[Any]:
        """Return u_i, the features of u that belong to b_i."""
        return [u[..., at] for at in self.places]


def side_by_side(parts: list[Array]) -> Array:
    """Concatenate arrays along the last axis, after broadcasting their leading axes."""
    xp = array_namespace(*parts)
    lead = np.broadcast_shapes(*(a.shape[:-1] for a in parts))
    return xp.concat([xp.broadcast_to(a, (*lead, a.shape[-1])) for a in parts], axis=-1)


KINDS: dict[type[s.Branches], type[BranchesJacobian]] = {
    s.Sum: SumJacobian,
    s.Product: ProductJacobian,
    s.Concat: ConcatJacobian,
}


@bind.register
def _(layer: s.Branches, site: Site, parametrization: Parametrization, name: str) -> BoundBranches:
    apart = replace(site, residuals=0)
    inner = tuple(place(child, apart, parametrization, f"{name}.{i}") for i, child in enumerate(layer))
    return BoundBranches(inner, tuple(map(str, range(len(inner)))), KINDS[type(layer)])


@bind.register
def _(layer: s.Residual, site: Site, parametrization: Parametrization, name: str) -> BoundBranches:
    branch = place(layer.branch, site.branch, parametrization, f"{name}.branch")
    shortcut = place(layer.shortcut, site, parametrization, f"{name}.shortcut")
    return BoundBranches((branch, shortcut), ("branch", "shortcut"), SumJacobian)
