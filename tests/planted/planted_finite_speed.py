"""Plant errors in the fast versions of the finite network's layers (see `planted`)."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

import minintk as mn
from minintk.fast import accelerate, conv, conv_gram, dense, gather, norm, numba_loops, split_batch, split_outputs
from minintk.fast.accelerate import faster
from minintk.fast.conv import BlockedConv, BlockedConvJacobian
from minintk.fast.dense import SplitDenseJacobian
from minintk.fast.gather import Gather
from minintk.fast.norm import CompiledNormJacobian
from minintk.fast.patches import Patches
from minintk.fast.split_batch import SplitBatchJacobian
from minintk.layers.pool import BoundAvgPool, BoundMaxPool
from minintk.threads import parallel
from tests.kit.laws import Array, Patch
from tests.planted.planted_laws_images import (
    fast_coupled,
    fast_dense,
    fast_direct,
    fast_gathered,
    fast_gram,
    fast_order,
    fast_patches,
    fast_shares,
)
from tests.planted.planting import bias_by, planted, weights_by

# ------------------------------------------------------------------------------- Dense over the cores


@planted("split products: a piece in the wrong place", fast_dense)
def _(patch: Patch) -> None:
    right = dense.split

    def split(*jobs: Any) -> None:
        right(*jobs)
        for *_, out in jobs:
            out[...] = np.roll(out, max(out.shape) // 2, axis=int(out.shape[0] <= out.shape[1]))

    patch.setattr(dense, "split", split)


@planted("split products: only the first of several is formed", fast_dense)
def _(patch: Patch) -> None:
    right = dense.split

    def split(*jobs: Any) -> None:
        for *_, out in jobs:
            out[...] = 0
        right(jobs[0])

    patch.setattr(dense, "split", split)


@planted("split products: dW without the multiplier", fast_dense)
def _(patch: Patch) -> None:
    weights_by(patch, SplitDenseJacobian, lambda J: J.layer.parameters)


@planted("split products: no gradient for the bias", fast_dense)
def _(patch: Patch) -> None:
    bias_by(patch, SplitDenseJacobian, lambda J: J.layer.parameters, 0)


@planted("split outputs: a part of the outputs left out", fast_shares)
def _(patch: Patch) -> None:
    patch.setattr(split_outputs, "parallel", lambda work, items: parallel(work, items[:-1]))


@planted("split outputs: the first part for all of them", fast_shares)
def _(patch: Patch) -> None:
    patch.setattr(split_outputs, "parallel", lambda work, items: parallel(work, items[:1] * len(items)))


# ------------------------------------------------------------------------- patches of several windows


@planted("patches: the weights of the first of several windows only", fast_patches)
def _(patch: Patch) -> None:
    right = Patches.unroll

    def unroll(self: Patches, W: Array) -> Array:
        V = np.array(right(self, W))
        V[..., self.channels[1] :] = 0
        return V

    patch.setattr(Patches, "unroll", unroll)


@planted("patches: gradients of windows that share a row of patches not added up", fast_patches)
def _(patch: Patch) -> None:
    right = Patches.roll

    def roll(self: Patches, V: Array) -> Array:
        W = right(self, V)
        return np.asarray(W if self.B == 1 else self._bands(V)[..., 0, :, :, :, :].reshape(W.shape))

    patch.setattr(Patches, "roll", roll)


@planted("patches: several windows read one pixel off", fast_patches)
def _(patch: Patch) -> None:
    right = Patches.read

    def read(self: Patches, x: Array, *out: Any) -> Array:
        return np.asarray(right(self, x if self.B == 1 else np.roll(x, 1, axis=-2), *out))

    patch.setattr(Patches, "read", read)


@planted("patches: dx one pixel off", fast_patches)
def _(patch: Patch) -> None:
    right = Patches.add

    def add(self: Patches, P: Array, x: Array) -> None:
        right(self, P, x)
        x[...] = np.roll(x, 1, axis=-2)

    patch.setattr(Patches, "add", add)


@planted("patches: dW without the multiplier", fast_patches)
def _(patch: Patch) -> None:
    weights_by(patch, BlockedConvJacobian, lambda J: J.layer.plain.parameters)


@planted("patches: no gradient for the bias", fast_patches)
def _(patch: Patch) -> None:
    bias_by(patch, BlockedConvJacobian, lambda J: J.layer.plain.parameters, 0)


@planted("patches: the bias of the first of several windows only", fast_patches)
def _(patch: Patch) -> None:
    right = BlockedConv.bias_row

    def bias_row(self: BlockedConv, w: Any) -> Any:
        row = right(self, w)
        return None if row is None else np.where(np.arange(row.shape[-1]) < self.plain.after[-1], row, 0)

    patch.setattr(BlockedConv, "bias_row", bias_row)


@planted("patches: only the last piece's gradient counts", fast_patches)
def _(patch: Patch) -> None:
    right = conv.summed
    patch.setattr(conv, "summed", lambda work, shares: right(work, shares[-1:]))


@planted("patches: only the first chunk of a piece's gradient counts", fast_patches)
def _(patch: Patch) -> None:
    right = conv.chunks
    patch.setattr(conv, "chunks", lambda piece, step: right(piece, step)[:1])


# -------------------------------------------------------------------------- kernels of convolutions


for way in ("gradients", "pairs"):
    name = f"by_{way}"

    @planted(f"gram by {way}: the multiplier once", fast_gram)
    def _(patch: Patch, name: str = name) -> None:
        right = getattr(conv_gram, name)
        patch.setattr(conv_gram, name, lambda p, *rest: right(replace(p, m=p.m**0.5), *rest))

    @planted(f"gram by {way}: without the bias", fast_gram)
    def _(patch: Patch, name: str = name) -> None:
        right = getattr(conv_gram, name)
        patch.setattr(conv_gram, name, lambda p, *rest: right(replace(p, b=None), *rest))

    @planted(f"gram by {way}: equal positions only, p = q", fast_gram)
    def _(patch: Patch, name: str = name) -> None:
        right = getattr(conv_gram, name)

        def wrong(p: Any, windows: Patches, x: Array, a: Array, z: Array, b: Array, kernel: Any) -> Any:
            total = 0.0
            for at in range(a.shape[-2]):
                u, v = np.zeros_like(a), np.zeros_like(b)
                u[..., at, :], v[..., at, :] = a[..., at, :], b[..., at, :]
                total = total + right(p, windows, x, u, z, v, kernel)
            return total

        patch.setattr(conv_gram, name, wrong)


@planted("gram by gradients: the first example's patches for all", fast_gram)
def _(patch: Patch) -> None:
    right = conv_gram.gradient_rows

    def wrong(windows: Patches, x: Array, u: Array, compiled: bool) -> Array:
        return np.asarray(right(windows, np.broadcast_to(x[..., :1, :, :, :], x.shape), u, compiled))

    patch.setattr(conv_gram, "gradient_rows", wrong)


# ------------------------------------------------------------------ gathered gradients, compiled convolutions


@planted("gathered: the weights as they stand, not turned", fast_gathered)
def _(patch: Patch) -> None:
    right = Gather.turned
    patch.setattr(Gather, "turned", lambda self, W: right(self, W[..., ::-1, ::-1, :, :]))


@planted("gathered: pixels of the first remainder by the stride only", fast_gathered)
def _(patch: Patch) -> None:
    right = BlockedConv.of
    patch.setattr(
        BlockedConv, "of", staticmethod(lambda plain: replace(right(plain), gathers=right(plain).gathers[:1]))
    )


@planted("gathered: the pixels of u one too early", fast_gathered)
def _(patch: Patch) -> None:
    right = gather.remainders

    def remainders(a: Any) -> Any:
        def early(on: Any) -> Any:
            return replace(on, before=on.before + 1, after=on.after - 1) if on.after else on

        return [(*slices, early(on)) for *slices, on in right(a)]

    patch.setattr(gather, "remainders", remainders)


@planted("gathered: dx without the multiplier", fast_gathered)
def _(patch: Patch) -> None:
    right = BlockedConvJacobian._gathered

    def gathered(self: BlockedConvJacobian, u: Array) -> Array:
        return right(self, u) / self.layer.plain.parameters.m

    patch.setattr(BlockedConvJacobian, "_gathered", gathered)


ONE = (0, 0, 1, 1)
"""The place of a result that fills a whole array: pixels start at (0, 0), in steps of (1, 1)."""


def elsewhere(frame: Any) -> Any:
    """Return the frame with all pixels shifted left by one on the canvas, if there is padding on the left."""
    height, width, down, right = frame
    return height, width, down, np.maximum(right - [1, 0, 0], 0)


for name, wrong in {
    "the bias left out": lambda right: lambda *how: right(*how[:5], 0 * how[5], *how[6:]),
    "gathered pixels side by side": lambda right: lambda *how: right(*how[:-1], (*ONE, how[-1][-1])),
    "the last image not written": lambda right: lambda x, *how: right(x[:-1], *how),
    "images one pixel off in their frame": lambda right: lambda x, f, *rest: right(x, elsewhere(f), *rest),
    "images not normalised on the way": lambda right: lambda x, f, z, *rest: right(x, f, (0 * z[0], z[1], z[2]), *rest),
    "images not rectified on the way": lambda right: lambda x, f, z, *rest: right(x, f, (z[0], z[1], -inf), *rest),
}.items():

    @planted(f"compiled: {name}", fast_direct)
    def _(patch: Patch, wrong: Any = wrong) -> None:
        patch.setattr(numba_loops, "correlate", wrong(numba_loops.correlate))


@planted("compiled: dW of a piece's first example only", fast_direct)
def _(patch: Patch) -> None:
    right = numba_loops.add_gradient

    def add_gradient(x: Array, frame: Any, before: Any, u: Array, stride: Any, dW: Array) -> None:
        right(x[:1], frame, before, u[:, :1], stride, dW)

    patch.setattr(numba_loops, "add_gradient", add_gradient)


@planted("compiled: dW by images that are not rectified", fast_direct)
def _(patch: Patch) -> None:
    right = numba_loops.add_gradient
    patch.setattr(numba_loops, "add_gradient", lambda x, f, z, *rest: right(x, f, (z[0], z[1], -inf), *rest))


@planted("compiled: the gradient in x also where ReLU is 0", fast_direct)
def _(patch: Patch) -> None:
    patch.setattr("minintk.fast.fused_relu.centre", lambda *how, right=norm.centre: right(*how[:6], -inf, *how[7:]))


@planted("compiled: the mean of the gradient also where ReLU is 0", fast_direct)
def _(patch: Patch) -> None:
    patch.setattr("minintk.fast.fused_relu.means", lambda *how, right=norm.means: right(*how[:-1], -inf))


@planted("BatchNorm compiled: the statistics of half of the rows", fast_coupled)
def _(patch: Patch) -> None:
    patch.setattr(norm, "means", lambda a, *rest, right=norm.means: right(a[: len(a) // 2], *rest))


@planted("BatchNorm compiled: the statistics as if they were constants", fast_coupled)
def _(patch: Patch) -> None:
    patch.setattr(CompiledNormJacobian, "vjp", lambda self, u, dw: self.r * u)


# --------------------------------------------------------------------------------- shares of a batch


@planted("shares: only the first share's gradient counts", fast_shares)
def _(patch: Patch) -> None:
    def vjp(self: SplitBatchJacobian, u: Array, dw: Any) -> Any:
        return self.parts[0].vjp(split_batch.examples(u, len(self.layer.after), self.shares[0]), dw)

    patch.setattr(SplitBatchJacobian, "vjp", vjp)


@planted("shares: joined in the wrong order", fast_shares)
def _(patch: Patch) -> None:
    right = split_batch.joined
    patch.setattr(split_batch, "joined", lambda parts, axes: right(parts[::-1], axes))


@planted("shares: every share gets the first one's cotangents", fast_shares)
def _(patch: Patch) -> None:
    right = SplitBatchJacobian.vjp

    def vjp(self: SplitBatchJacobian, u: Array, dw: Any) -> Any:
        at = split_batch.examples(u, len(self.layer.after), slice(0, 1))
        return right(self, np.broadcast_to(at, u.shape), dw)

    patch.setattr(SplitBatchJacobian, "vjp", vjp)


@planted("shares: a batch with BatchNorm is split as if it coupled nothing", fast_coupled)
def _(patch: Patch) -> None:
    wrong = staticmethod(lambda layers, spec, shape, coupled: faster(layers, spec, shape, False))
    patch.setattr(mn.Network, "speed", wrong)


# -------------------------------------------------------------------------------------------- reorder


@planted("reorder: Abs waits for the pooling, as if it were increasing", fast_order)
def _(patch: Patch) -> None:
    kinds = (mn.ReLU, mn.Abs)
    patch.setattr(
        accelerate, "exchangeable", lambda a, b: type(getattr(a, "layer", a)) in kinds and type(b) is BoundMaxPool
    )


@planted("reorder: ReLU waits for AvgPool, as if it were MaxPool", fast_order)
def _(patch: Patch) -> None:
    pools = (BoundMaxPool, BoundAvgPool)
    patch.setattr(
        accelerate, "exchangeable", lambda a, b: isinstance(getattr(a, "layer", a), mn.ReLU) and type(b) in pools
    )
