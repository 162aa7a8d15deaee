"""Run a network's layers as one layer, with single-threaded BLAS and, for kernels, outputs split over the cores.

    Theta = sum_c Theta_c        the trace over outputs is a sum of traces over parts of them

Each part has fewer cotangents, which saves memory.  BLAS is limited to one thread: its threads spin while they wait, so
a small matrix product can take about ten times as long when another program runs.  Instead, large products, batches and
outputs are split over threads that do not spin.  Only a large kernel that is not split here is computed with all BLAS
threads.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from math import prod

from minintk.arrays import Array, array_namespace, on_host
from minintk.layers.combine import BoundChain, ChainJacobian
from minintk.layers.contract import Contraction, Weights
from minintk.threads import parallel, single_threaded_blas
from minintk.thresholds import THRESHOLDS, cut


@dataclass(frozen=True)
class SplitOutputsJacobian(ChainJacobian):
    """J for N inputs (members x examples).   sizes : activations per example, in all layers and in the largest."""

    N: int
    sizes: tuple[int, int]

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        with single_threaded_blas():
            return super().jvp(dw, dx)

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        with single_threaded_blas():
            return super().vjp(u, dw)

    def gram(self, u: Array, other: ChainJacobian, v: Array, kernel: Contraction) -> Array | float:
        """Compute the gram.  If only its trace over outputs is needed, sum over parts of the outputs."""
        C, whole = u.shape[0], super().gram
        count = 1 if kernel.full or v is not u else min(self.count(u), C)
        parts = [u[i * C // count : (i + 1) * C // count] for i in range(count)]
        large = self.N**2 * self.sizes[1] * (C if count == 1 else 1) >= THRESHOLDS.contraction
        with nullcontext() if large else single_threaded_blas():
            first, *others = parallel(lambda part: whole(part, other, part if v is u else v, kernel), parts)
        return sum(others, first)

    def count(self, u: Array) -> int:
        """Return the number of parts: as many as memory requires, or more if the gain outweighs the repeated work."""
        if not on_host(array_namespace(u)):
            return 1
        (total, widest), C = self.sizes, u.shape[0]
        parts = u.dtype.itemsize * self.N * widest * C // THRESHOLDS.cotangent_bytes
        return max(len(cut(C // 3, self.N * total * C, THRESHOLDS.cotangents)), int(parts))


@dataclass(frozen=True)
class SplitOutputs(BoundChain):
    """The layers of a network, as one chain.   sizes : as in `SplitOutputsJacobian`."""

    sizes: tuple[int, int]

    def __call__(self, w: Weights, x: Array) -> tuple[Array, ChainJacobian]:
        with single_threaded_blas():
            y, J = super().__call__(w, x)
        return y, SplitOutputsJacobian(self.layers, J.links, prod(y.shape[:-1]), self.sizes)
