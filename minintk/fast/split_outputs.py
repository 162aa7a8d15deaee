"""Kernels with the outputs split over the cores:  trace = sum over parts of the outputs of the part's trace.

A part has fewer cotangents, so parts also save memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from minintk.arrays import Array, array_namespace, on_host
from minintk.fast.threads import cores, parallel
from minintk.fast.thresholds import THRESHOLDS
from minintk.layers.contract import Bound, Contraction, LayerJacobian, Tensor, Weights


@dataclass(frozen=True)
class SplitOutputsJacobian(LayerJacobian):
    """J of a network for N examples (of each member) of these `sizes`, (all activations together, the largest)."""

    J: LayerJacobian
    N: int
    sizes: tuple[int, int]

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        return self.J.jvp(dw, dx)

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        return self.J.vjp(u, dw)

    def gram(self, u: Array, other: SplitOutputsJacobian, v: Array, kernel: Contraction) -> Array | float:
        """sum over parts of the outputs, where only the trace is wanted."""
        count = 1 if kernel.full else min(self.count(u), u.shape[0])
        if count == 1 or v is not u:
            return self.J.gram(u, other.J, v, kernel)
        C = u.shape[0]
        parts = [u[i * C // count : (i + 1) * C // count] for i in range(count)]
        return sum(parallel(lambda part: self.J.gram(part, other.J, part, kernel), parts))

    def count(self, u: Array) -> int:
        """How many parts: one for each core where that is worth it, more where a cotangent is large."""
        if not on_host(array_namespace(u)):
            return 1
        (total, widest), C = self.sizes, u.shape[0]
        worth = self.N * total * C >= THRESHOLDS.cotangents
        parts = u.dtype.itemsize * self.N * widest * C // THRESHOLDS.cotangent_bytes
        return max(cores() if worth else 1, int(parts))


@dataclass(frozen=True)
class SplitOutputs:
    """A network in one piece, for kernels; `sizes` as above, `axes` of an example."""

    chain: Bound
    sizes: tuple[int, int]
    axes: int

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.chain.tensors

    def __call__(self, w: Weights, x: Array) -> tuple[Array, LayerJacobian]:
        y, J = self.chain(w, x)
        members = max((a.size // t.size for t in self.tensors[:1] for a in (w[t.name],)), default=1)
        return y, SplitOutputsJacobian(J, members * x.shape[-1 - self.axes], self.sizes)
