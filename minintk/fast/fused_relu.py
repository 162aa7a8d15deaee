"""Convolve images that are optionally normalised and then rectified:  y = P(z) V + c b,   z = max(r (x - mean), 0)

    S = sum m u,  Q = sum m u r (x - mean)       m = [x > mean]        dx = r (m u - S/M - r (x - mean) Q/M)

Neither z nor the output of BatchNorm is stored, because the convolution's compiled loops compute z while they copy each
image into its frame.  u, the gradient with respect to z, is a temporary array that dx overwrites.  Without BatchNorm,
mean = 0, r = 1 and dx = m u.  M : the number of pixels in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minintk import spec as s
from minintk.arrays import Array
from minintk.fast.conv import BlockedConv, BlockedConvJacobian, kernels
from minintk.fast.norm import CompiledBatchNorm, centre, means, pixels
from minintk.layers.activation import BoundActivation
from minintk.layers.combine import BoundChain, ChainJacobian
from minintk.layers.contract import Bound, LayerJacobian, Tensor, Weights
from minintk.layers.patches import images


@dataclass(frozen=True)
class RectifiedJacobian(LayerJacobian):
    """The Jacobian at x : (N, *shape), with mean and r : (C,), and the convolution's J at z."""

    layer: RectifiedConv
    x: Array
    mean: Array
    r: Array
    J: BlockedConvJacobian

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        return self.one_by_one().jvp(dw, dx)

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """Compute dx = r (m u - S/M - r (x - mean) Q/M)."""
        if u.ndim > 1 + len(self.layer.conv.plain.after):
            return self.one_by_one().vjp(u, dw)
        if (back := self.J.vjp(u, dw)) is None:
            return None
        S, Q = nothing = np.zeros((2, len(self.r)))
        if self.layer.norm is not None:
            S, Q = means(back, nothing[0], self.x, self.mean, 0.0)
            Q = self.r * Q
        return centre(np.ascontiguousarray(back), S, self.x, self.mean, self.r * Q, self.r, 0.0)

    def one_by_one(self) -> ChainJacobian:
        """Return the Jacobian of the separate layers.  It is used for tangents and for several cotangents at once."""
        layer, y, links = self.layer, self.x, list[LayerJacobian]()
        if layer.norm is not None:
            y, norm = layer.norm.normalised(self.x, self.mean, self.r)
            links.append(norm)
        z, relu = layer.relu({}, y)
        conv = BlockedConvJacobian(layer.conv, images(z, layer.conv.plain.before), self.J.W, self.J.V)
        return ChainJacobian(layer.layers, (*links, relu, conv))


@dataclass(frozen=True)
class RectifiedConv:
    """[BatchNorm,] ReLU and a convolution, in one pass where Numba's loops pay off (see `__call__`)."""

    norm: CompiledBatchNorm | None
    relu: Bound
    conv: BlockedConv

    @staticmethod
    def joined(layers: tuple[Bound, ...]) -> tuple[Bound, ...]:
        """Return the layers with [BatchNorm,] ReLU and convolution merged if Numba's loops can run the convolution."""
        found: list[Bound] = []
        for layer in layers:
            if type(layer) is BlockedConv and layer.patches.direct and found and rectifies(found[-1]):
                norm = found[-2] if len(found) > 1 and type(found[-2]) is CompiledBatchNorm else None
                layer = RectifiedConv(norm, found[-1], layer)
                del found[-len(layer.layers) + 1 :]
            found.append(layer)
        return tuple(found)

    @property
    def layers(self) -> tuple[Bound, ...]:
        """Return the layers that this layer replaces."""
        return (self.relu, self.conv) if self.norm is None else (self.norm, self.relu, self.conv)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.conv.tensors

    def __call__(self, w: Weights, x: Array) -> tuple[Array, LayerJacobian]:
        """Return (y, J).  The layers run separately for ensembles, for a frozen norm, and if loops do not pay off."""
        before, (first, *_) = self.conv.plain.before, self.tensors
        found: tuple[Array, Array] | None = None
        alone = x.ndim == 1 + len(before) and w[first.name].ndim == len(first.shape)
        if alone and kernels([self.conv.patches], images(x, before)) is not None:
            C = x.shape[-1]
            found = (np.zeros(C), np.ones(C)) if self.norm is None else self.norm.measured(w, x, loaded=True)
        if found is None:
            return BoundChain(self.layers)(w, x)
        mean, r = found
        y, J = self.conv(w, x, (pixels(mean, x), pixels(r, x), x.dtype.type(0)))
        return y, RectifiedJacobian(self, x, mean, r, J)


def rectifies(layer: Bound) -> bool:
    """Return True if the layer is ReLU."""
    return type(layer) is BoundActivation and type(layer.layer) is s.ReLU
