"""Split the batch over the cores for layers that process images: each core computes some of the examples.

    y = [y_1; y_2]        dy = [dy_1; dy_2]        dW = dW_1 + dW_2,   dx = [dx_1; dx_2]

Together, these layers need only one dispatch to the other cores, and each layer finds its input in the cache.  If
BatchNorm couples the examples, each layer splits its own work instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt

from minintk.arrays import Array, array_namespace, on_host
from minintk.layers.combine import BoundChain
from minintk.layers.contract import Contraction, LayerJacobian, Tensor, Weights
from minintk.spec.shapes import Shape
from minintk.threads import parallel
from minintk.thresholds import THRESHOLDS, cut


@dataclass(frozen=True)
class SplitBatchJacobian(LayerJacobian):
    """The Jacobians J_i of the parts of the batch.  `w` and `x` are kept for `gram`, which needs the whole batch."""

    layer: SplitBatch
    shares: list[slice]
    parts: list[LayerJacobian]
    w: Weights
    x: Array

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """Return dy = [dy_1; dy_2]."""
        if len(self.parts) == 1:
            return self.parts[0].jvp(dw, dx)
        before, after = len(self.layer.before), len(self.layer.after)

        def work(i: int) -> Array | None:
            return self.parts[i].jvp(dw, None if dx is None else examples(dx, before, self.shares[i]))

        return joined(parallel(work, range(len(self.parts))), after)

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """Write dW = dW_1 + dW_2 to dw and return dx = [dx_1; dx_2]."""
        if len(self.parts) == 1:
            return self.parts[0].vjp(u, dw)
        xp, layer = array_namespace(u), self.layer
        sums: list[Weights | None] = [dw] + [
            None if dw is None else {t.name: xp.zeros_like(dw[t.name]) for t in layer.tensors} for _ in self.parts[1:]
        ]

        def work(i: int) -> Array | None:
            return self.parts[i].vjp(examples(u, len(layer.after), self.shares[i]), sums[i])

        dx = parallel(work, range(len(self.parts)))
        if dw is not None:
            for others in sums[1:]:
                for name, part in (others or {}).items():
                    dw[name] += part
        return joined(dx, len(layer.before))

    def gram(self, u: Array, other: SplitBatchJacobian, v: Array, kernel: Contraction) -> Array | float:
        return self.gram_and_back(u, other, v, kernel)[0]

    def gram_and_back(
        self, u: Array, other: SplitBatchJacobian, v: Array, kernel: Contraction
    ) -> tuple[Array | float, Array | None, Array | None]:
        """Compute the gram and the cotangents of the whole batch.  This repeats the forward pass."""
        J = self.layer.kernels(self.w, self.x)[1]
        K = J if other is self else other.layer.kernels(other.w, other.x)[1]
        return J.gram_and_back(u, K, v, kernel)


def examples(a: Array, axes: int, at: slice) -> Array:
    """Return the examples in the slice `at` of a : (..., N, *shape).   axes : the length of `shape`."""
    return a[(..., at) + (slice(None),) * axes]


def joined(parts: list[Array | None], axes: int) -> Array | None:
    """Concatenate the parts along the example axis, or return None if they are None."""
    if parts[0] is None:
        return None
    return array_namespace(parts[0]).concat(parts, axis=-1 - axes)


@dataclass(frozen=True)
class SplitBatch:
    """A chain of layers that can compute parts of the batch in parallel.

    sweeps : the chain that computes each part.  kernels : an equivalent chain, used for kernels and on GPUs.
    before, after : the shapes of one input and of one output.  numbers : the number of activations per example.
    """

    sweeps: BoundChain
    kernels: BoundChain
    before: Shape
    after: Shape
    numbers: int

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.sweeps.tensors

    def __call__(self, w: Weights, x: Array) -> tuple[Array, LayerJacobian]:
        """Return the chain's (y, J), computed part by part if splitting pays off."""
        if not on_host(array_namespace(x)):
            return self.kernels(w, x)
        N = x.shape[-1 - len(self.before)]
        size = prod(x.shape) + N * self.numbers
        weights = sum(t.size for t in self.tensors)
        shares = cut(N, size, max(sqrt(THRESHOLDS.share * size), THRESHOLDS.share_per_weight * weights, 1))

        def work(at: slice) -> tuple[Array, LayerJacobian]:
            return self.sweeps(w, examples(x, len(self.before), at))

        results = parallel(work, shares)
        y = results[0][0] if len(results) == 1 else joined([y for y, _ in results], len(self.after))
        assert y is not None
        return y, SplitBatchJacobian(self, shares, [J for _, J in results], w, x)
