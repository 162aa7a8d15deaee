"""Kernels of image networks with the outputs split over the cores: the trace is the sum of the traces of parts.

A part has fewer cotangents, so parts also save memory.  (Fully connected kernels are left to BLAS's own threads.)
"""

from __future__ import annotations

from dataclasses import dataclass

from minintk.arrays import Array, array_namespace, on_host
from minintk.fast.threads import cores, parallel
from minintk.fast.thresholds import THRESHOLDS
from minintk.layers.combine import BoundChain, ChainJacobian
from minintk.layers.contract import Contraction, Weights


@dataclass(frozen=True)
class SplitOutputsJacobian(ChainJacobian):
    """J for N examples (of each member) of these `sizes`, (all activations together, the largest)."""

    N: int
    sizes: tuple[int, int]

    def gram(self, u: Array, other: ChainJacobian, v: Array, kernel: Contraction) -> Array | float:
        """sum over parts of the outputs, where only the trace is wanted."""
        C, whole = u.shape[0], super().gram
        count = 1 if kernel.full or v is not u else min(self.count(u), C)
        parts = [u[i * C // count : (i + 1) * C // count] for i in range(count)]
        first, *others = parallel(lambda part: whole(part, other, part if v is u else v, kernel), parts)
        return sum(others, first)

    def count(self, u: Array) -> int:
        """How many parts: one for each core where that is worth it, more where a cotangent is large."""
        if not on_host(array_namespace(u)):
            return 1
        (total, widest), C = self.sizes, u.shape[0]
        worth = self.N * total * C >= THRESHOLDS.cotangents
        parts = u.dtype.itemsize * self.N * widest * C // THRESHOLDS.cotangent_bytes
        return max(cores() if worth else 1, int(parts))


@dataclass(frozen=True)
class SplitOutputs(BoundChain):
    """The layers of a network in one piece, for kernels; `sizes` as above, `axes` of an example."""

    sizes: tuple[int, int]
    axes: int

    def __call__(self, w: Weights, x: Array) -> tuple[Array, ChainJacobian]:
        y, J = super().__call__(w, x)
        members = max((w[t.name].size // t.size for t in self.tensors[:1]), default=1)
        return y, SplitOutputsJacobian(self.layers, J.links, members * x.shape[-1 - self.axes], self.sizes)
