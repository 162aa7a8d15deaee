"""Plant errors in branches, products and masks of finite and infinite networks (see `planted`)."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from analytic.images import activations, attention, steps
from analytic.recursion import rules
from analytic.recursion.state import Dual, Pairs, RowState
from minintk.layers.branches import ConcatJacobian, ProductJacobian
from minintk.layers.dropout import BoundDropout
from minintk.layers.pool import AvgPoolJacobian
from tests.kit.laws import Array, Patch
from tests.kit.structure_laws import (
    affine_twice_is_once,
    branches,
    correlated_products,
    edges_and_norms,
    kernels_of_branches,
    kernels_of_pixels,
    linear_attention,
    masks,
    masks_of_a_second_array,
)
from tests.planted.planting import planted


@planted("Product: jvp and vjp forget the other factors", branches)
def _(patch: Patch) -> None:
    patch.setattr(ProductJacobian, "join", lambda self, db: sum(one for one in db if one is not None))
    patch.setattr(ProductJacobian, "split", lambda self, u: [u for _ in self.parts])


@planted("Product: gram with the cotangents of a sum", branches)
def _(patch: Patch) -> None:
    right = ProductJacobian.gram_and_back

    def wrong(self: Any, u: Array, other: Any, v: Array, kernel: Any) -> Any:
        G = sum(J.gram(u, K, v, kernel) for J, K in zip(self.parts, other.parts, strict=True))
        return (G, *right(self, u, other, v, kernel)[1:])

    patch.setattr(ProductJacobian, "gram_and_back", wrong)


@planted("Concat: cotangents of the branches in the wrong order", branches)
def _(patch: Patch) -> None:
    right = ConcatJacobian.split

    def wrong(self: Any, u: Array) -> Any:
        return [one[..., ::-1] for one in right(self, u)]

    patch.setattr(ConcatJacobian, "split", wrong)


@planted("Product kernel: Theta_1 Theta_2 for Theta_1 K_2 + K_1 Theta_2", kernels_of_branches)
def _(patch: Patch) -> None:
    right = rules.ProductOfParts.join

    def wrong(self: Any, one: RowState, two: RowState) -> Any:
        after, row = right(self, one, two)
        return RowState(after.q, one.theta * two.theta, after.error), row

    patch.setattr(rules.ProductOfParts, "join", wrong)


@planted("Product kernel: parts of the same features are taken for independent ones", correlated_products)
def _(patch: Patch) -> None:
    patch.setattr(rules.ProductOfParts, "check", lambda self, one, two: None)


@planted("Product kernel: an activation has weights of its own", correlated_products)
def _(patch: Patch) -> None:
    right = Dual.law
    patch.setattr(Dual, "law", lambda self, law: replace(right(self, law), own=True))


@planted("Concat kernel: all branches weigh the same, whatever their widths", kernels_of_branches)
def _(patch: Patch) -> None:
    half = rules.Scaling(0.5, 0.0, 0.0, 0.0)
    patch.setattr(rules.Scaling, "rows", lambda self, rows: rules.Affine.rows(half, rows))


@planted("Product of images: D_1 D_2 left out", kernels_of_pixels)
def _(patch: Patch) -> None:
    right = steps.multiply_fields

    def wrong(field: Any, other: Any, row: Any) -> None:
        extra = field.d * other.d
        right(field, other, row)
        field.d += extra

    patch.setattr(steps, "multiply_fields", wrong)


@planted("Dropout of images: a pixel meets itself with another mask", kernels_of_pixels)
def _(patch: Patch) -> None:
    right = steps.equal_pixels
    patch.setattr(steps, "equal_pixels", lambda field, a, factor=1.0: right(field, a))


@planted("AvgPool with normalised edges: dx divided by the window's size", edges_and_norms)
def _(patch: Patch) -> None:
    right = AvgPoolJacobian.vjp

    def wrong(self: AvgPoolJacobian, u: Array, dw: Any) -> Any:
        return right(replace(self, layer=replace(self.layer, normalised=False)), u, dw)

    patch.setattr(AvgPoolJacobian, "vjp", wrong)


@planted("AvgPool kernel with normalised edges: divided by the window's size", edges_and_norms)
def _(patch: Patch) -> None:
    right = steps.averaging_matrix
    patch.setattr(steps, "averaging_matrix", lambda xp, axis, normalised: right(xp, axis, normalised=False))


@planted("ReLU on images: Theta without the biases' share, where that of the weights is 0", affine_twice_is_once)
def _(patch: Patch) -> None:
    right = steps.add_term

    def wrong(theta: Array, two_k: Array, pending: tuple[float, float]) -> None:
        if pending[0] != 0:
            right(theta, two_k, pending)

    patch.setattr(activations, "add_term", wrong)


def uncached(patch: Patch) -> None:
    """Disable the cache of programs, so that no program with a wrong rule remains."""
    module = sys.modules["analytic.kernels"]
    patch.setattr(module, "_program", vars(module)["_program"].__wrapped__)


@planted("LayerNorm kernel over pixels: each pixel by its own variance", edges_and_norms)
def _(patch: Patch) -> None:
    uncached(patch)
    right = rules.Normalise
    patch.setattr(rules, "Normalise", lambda eps, pixels: right(eps, ()))


@planted("Linear attention kernel: the mean over pairs of positions for their sum", linear_attention)
def _(patch: Patch) -> None:
    uncached(patch)
    patch.setattr(attention, "scaling", lambda factor: rules.scaling(1.0))


@planted("Linear attention kernel: keys in the place of values", linear_attention)
def _(patch: Patch) -> None:
    uncached(patch)
    patch.setattr(attention, "ProductOfParts", lambda one, two: rules.ProductOfParts(one, two if len(two) > 1 else one))


@planted("Dropout: numbers that stay are not scaled up", masks)
def _(patch: Patch) -> None:
    right = BoundDropout.draw
    patch.setattr(BoundDropout, "draw", lambda self, keys, x: (1 - self.rate) * right(self, keys, x))


@planted("Dropout kernel: one mask for all examples", masks)
def _(patch: Patch) -> None:
    patch.setattr(rules.Masks, "pairs", lambda self, pairs, row: None)


@planted("Dropout kernel: k(x, x) with the masks of k(x), and k(x, x.copy()) without", masks_of_a_second_array)
def _(patch: Patch) -> None:
    module = sys.modules["analytic.kernels"]
    patch.setattr(module, "has_masks", lambda steps: False)


@planted("Dropout kernel: Theta of two examples as if they were one", masks)
def _(patch: Patch) -> None:
    right = rules.Masks.pairs

    def wrong(self: Any, pairs: Pairs, row: Any) -> None:
        right(self, pairs, row)
        if pairs.tau is not None:
            pairs.tau /= self.keep

    patch.setattr(rules.Masks, "pairs", wrong)
