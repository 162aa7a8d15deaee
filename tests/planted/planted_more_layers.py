"""Plant errors in `minintk.more_layers` and in the graphs that lift reads (see `planted`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import minintk as mn
from minintk.layers.activation import Pointwise, pointwise
from minintk.lifting import graph, modules
from minintk.lifting.graph import Node, Reader
from minintk.models.network import short
from minintk.more_layers import adaptive_pool
from minintk.more_layers.activations import ELU
from minintk.more_layers.adaptive_pool import AdaptiveAvgPoolJacobian
from minintk.more_layers.group_norm import BoundGroupNorm, GroupNormJacobian
from minintk.more_layers.grouped_conv import BoundGroupedConv, GroupedConvJacobian
from tests.kit import torch_standin
from tests.kit.grouped import derivatives, derivatives_of_others, formulas
from tests.kit.laws import Array, Patch
from tests.kit.lifted import check_recorded
from tests.planted.planting import bias_by, gram_with, planted, weights_by, without_weights


def recorded() -> None:
    """A model with groups, holes, ceil_mode and adaptive pooling has torch's outputs and gradients."""
    check_recorded(name="more_images")


def trees() -> None:
    """Branches that join in a node begin at the last node on all paths from the graph's input to the joined values."""
    model = torch_standin.Module()
    for name in "ab":
        setattr(model, name, torch_standin.nn.Linear(2, 2))
    x = Node("input", "x", shape=(2, 2))
    a = Node("module", "a", (x,), shape=(2, 2))
    h = Node("operation", "sub", (a, x), shape=(2, 2))
    b = Node("module", "b", (h,), shape=(2, 2))
    y = Node("operation", "mul", (b, Node("operation", "sigmoid", (h,), shape=(2, 2))), shape=(2, 2))
    nodes = [x, a, h, b, y.args[1], y, Node("output", "output", (y,))]
    dense = mn.Dense(2, b_std=1.0)
    want = [
        mn.Sum(dense, mn.Scale(-1.0)),
        mn.Product(dense, mn.Sigmoid()),
    ]
    try:
        piece = Reader(nodes, model, "").piece()
    except mn.UnsupportedLayer as error:
        raise AssertionError(f"2 layers of branches: refused, {error}") from None
    found, wanted = (", ".join(map(short, layers)) for layers in (piece.layers, want))
    assert piece.layers == want, f"2 layers of branches: {found} for {wanted}"
    assert piece.owners == ["a", "b"], f"2 modules in the order of the layers: {piece.owners}"


# ----------------------------------------------------------------------------------------- grouped convolutions


@planted("Grouped convolution: output channels dealt to the groups in turn", formulas)
def _(patch: Patch) -> None:
    def dealt(self: BoundGroupedConv, W: Array) -> Array:
        lead, rows = W.shape[:-4], int(np.prod(W.shape[-4:-1]))
        return np.moveaxis(W.reshape((*lead, rows, W.shape[-1] // self.groups, self.groups)), -1, -3)

    patch.setattr(BoundGroupedConv, "by_group", dealt)


@planted("Grouped convolution: holes between the windows, not in them", formulas)
def _(patch: Patch) -> None:
    def side_by_side(self: BoundGroupedConv) -> Any:
        windows, (d, e) = self.windows, self.dilation
        down, right = (
            [axis.along(k) for k in range(-(-axis.kernel // f))]
            for axis, f in ((windows.rows, d), (windows.columns, e))
        )
        return [(..., i, j, slice(None)) for i in down for j in right]

    patch.setattr(BoundGroupedConv, "places", property(side_by_side))


@planted("Grouped convolution: all groups read the first one's channels", formulas)
def _(patch: Patch) -> None:
    right = BoundGroupedConv.read

    def wrong(self: BoundGroupedConv, x: Array) -> Array:
        P = right(self, x)
        return 0 * P + P[..., :1, :, :]

    patch.setattr(BoundGroupedConv, "read", wrong)


@planted("Grouped convolution: the first pixel of each window gets no dx", derivatives)
def _(patch: Patch) -> None:
    right = BoundGroupedConv.add

    def wrong(self: BoundGroupedConv, P: Array) -> Array:
        P = P.copy()
        width = P.shape[-1] // len(self.places)
        P[..., :width] = 0
        return right(self, P)

    patch.setattr(BoundGroupedConv, "add", wrong)


@planted("Grouped convolution: dW without the multiplier", derivatives)
def _(patch: Patch) -> None:
    weights_by(patch, GroupedConvJacobian, lambda J: J.layer.parameters)


@planted("Grouped convolution: db of half the size", derivatives)
def _(patch: Patch) -> None:
    bias_by(patch, GroupedConvJacobian, lambda J: J.layer.parameters, 0.5)


@planted("Grouped convolution: jvp without the weights' change", derivatives)
def _(patch: Patch) -> None:
    without_weights(patch, GroupedConvJacobian)


@planted("Grouped convolution: gram without the bias", derivatives)
def _(patch: Patch) -> None:
    gram_with(patch, GroupedConvJacobian, lambda p: {"b": None})


@planted("Grouped convolution: gram of the first groups alone", derivatives)
def _(patch: Patch) -> None:
    right = GroupedConvJacobian.gram

    def wrong(self: GroupedConvJacobian, u: Array, other: Any, v: Array, kernel: Any) -> Any:
        return right(
            replace(self, layer=replace(self.layer, groups=max(1, self.layer.groups - 1))), u, other, v, kernel
        )

    def each(self: GroupedConvJacobian, u: Array) -> Any:
        return before(replace(self, layer=replace(self.layer, groups=self.W.shape[-3])), u)

    before = GroupedConvJacobian.each_example
    patch.setattr(GroupedConvJacobian, "each_example", each)
    patch.setattr(GroupedConvJacobian, "gram", wrong)


# ------------------------------------------------------------------------------------- pooling and normalisation


@planted("AdaptiveAvgPool: windows end before the pixel that two of them share", formulas)
def _(patch: Patch) -> None:
    def disjoint(m: int, n: int) -> Array:
        i, pixel = np.arange(n)[:, None], np.arange(m)
        inside = (pixel >= i * m // n) & (pixel < np.maximum((i + 1) * m // n, i * m // n + 1))
        return np.asarray(inside / inside.sum(axis=1, keepdims=True))

    patch.setattr(adaptive_pool, "means", disjoint)


@planted("AdaptiveAvgPool: cotangents spread by sums, not by means", derivatives_of_others)
def _(patch: Patch) -> None:
    def wrong(self: AdaptiveAvgPoolJacobian, u: Array, dw: Any) -> Array:
        return adaptive_pool.along([(A > 0).T.astype(float) for A in self.layer.matrices], u)

    patch.setattr(AdaptiveAvgPoolJacobian, "vjp", wrong)


@planted("GroupNorm: every g-th channel is one group", formulas)
def _(patch: Patch) -> None:
    def split(self: BoundGroupNorm, x: Array) -> Array:
        return x.reshape((*x.shape[:-1], x.shape[-1] // self.groups, self.groups)).swapaxes(-1, -2)

    def joined(self: BoundGroupNorm, x: Array) -> Array:
        return x.swapaxes(-1, -2).reshape((*x.shape[:-2], self.shape[-1]))

    patch.setattr(BoundGroupNorm, "split", split)
    patch.setattr(BoundGroupNorm, "joined", joined)


@planted("GroupNorm: statistics held fixed in jvp and vjp", derivatives_of_others)
def _(patch: Patch) -> None:
    def wrong(self: GroupNormJacobian, u: Array, dw: Any) -> Array:
        return self.layer.joined(self.norm.r * self.layer.split(u))

    patch.setattr(GroupNormJacobian, "vjp", wrong)


@planted("ELU: phi' of x <= 0 without alpha", derivatives_of_others)
def _(patch: Patch) -> None:
    def wrong(layer: ELU) -> Pointwise:
        point = right(layer)
        return replace(point, dphi=lambda xp, x: xp.exp(xp.minimum(x, 0)))

    right = pointwise.dispatch(ELU)
    patch.setattr(
        "minintk.layers.activation.pointwise",
        lambda layer: wrong(layer) if isinstance(layer, ELU) else pointwise(layer),
    )


# ---------------------------------------------------------------------------------------------- lifting


@planted("lift: ceil_mode left out", recorded)
def _(patch: Patch) -> None:
    patch.setattr(modules, "paddings", lambda m, shape: modules.size(m.padding))


@planted("lift: windows over the edge by ceil_mode divide by their whole size", recorded)
def _(patch: Patch) -> None:
    right = modules.average

    def wrong(m: Any, shape: Any) -> Any:
        layer: Any = right(m, shape)
        return replace(layer, normalize_edges=False)

    for name in ("AvgPool1d", "AvgPool2d"):
        patch.setitem(modules.MODULES, name, wrong)


@planted("lift: branches begin at the input of the forward", trees)
def _(patch: Patch) -> None:
    right = Reader.__init__

    def wrong(self: Reader, nodes: list[Node], module: Any, path: str) -> None:
        right(self, nodes, module, path)
        self.dominators = {node: frozenset({nodes[0]}) for node in nodes}

    patch.setattr(Reader, "__init__", wrong)


@planted("lift: a difference read as a sum", trees)
def _(patch: Patch) -> None:
    right = Reader.joined

    def wrong(self: Reader, node: Node) -> Any:
        return right(self, replace(node, target="add") if node.target == "sub" else node)

    patch.setattr(Reader, "joined", wrong)


@planted("lift: branches in another order than their modules", trees)
def _(patch: Patch) -> None:
    right = graph.branches
    patch.setattr(graph, "branches", lambda kind, layers: right(kind, layers[::-1]))
