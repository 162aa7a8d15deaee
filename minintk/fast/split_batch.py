"""The part of a network that works on images, its batch shared out over the cores: each takes some of the examples.

    y = [y_1; y_2]        dy = [dy_1; dy_2]        dW = dW_1 + dW_2,   dx = [dx_1; dx_2]

One hand-over to the other cores for all these layers at once, and what one layer writes the next finds in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from minintk import spec as s
from minintk.arrays import Array, array_namespace, on_host
from minintk.fast.reorder import arranged
from minintk.fast.threads import cores, inside, parallel
from minintk.layers.combine import BoundChain
from minintk.layers.contract import Bound, Contraction, Gram, LayerJacobian, Weights
from minintk.layers.layout import Tensor
from minintk.spec.shapes import Shape, has_weights, out_shape

LEAST = 2**20
"""Numbers in the activations of a batch below which one core is done before a second has started."""

WORTH = 2**21
"""Numbers in the activations of a share: what one layer writes the next should find in the cache."""

PER_WEIGHT = 16
"""Numbers in a share for each weight, at least: every share has the weights to prepare and a gradient of its own."""

MOST = 4
"""Shares for each core: more of them, and handing them over costs more than the cache saves."""


@dataclass(frozen=True)
class SharedJacobian:
    """The Jacobians J_i of the shares of the batch, of the layers in `chain`; w and x are kept for `gram`, which needs
    the batch in one piece and the layers as they are written."""

    layer: BoundShared
    chain: BoundChain
    shares: list[slice]
    parts: list[LayerJacobian]
    w: Weights
    x: Array

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """dy = [dy_1; dy_2]."""
        before, after = len(self.layer.before), len(self.layer.after)
        if len(self.parts) == 1:
            return self.parts[0].jvp(dw, dx)

        def work(i: int) -> Array | None:
            return self.parts[i].jvp(dw, None if dx is None else examples(dx, before, self.shares[i]))

        return joined(parallel(work, range(len(self.parts))), after)

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """dW = dW_1 + dW_2, dx = [dx_1; dx_2]."""
        xp, layer = array_namespace(u), self.layer
        if len(self.parts) == 1:
            return self.parts[0].vjp(u, dw)
        sums: list[Weights | None] = [dw] + [
            None if dw is None else {t.name: xp.empty_like(dw[t.name]) for t in layer.tensors} for _ in self.parts[1:]
        ]

        def work(i: int) -> Array | None:
            return self.parts[i].vjp(examples(u, len(layer.after), self.shares[i]), sums[i])

        dx = parallel(work, range(len(self.parts)))
        if dw is not None:
            for others in sums[1:]:
                for name, part in (others or {}).items():
                    dw[name] += part
        return joined(dx, len(layer.before))

    def gram(self, u: Array, other: SharedJacobian, v: Array, kernel: Contraction) -> Gram:
        """That of the batch in one piece."""
        J = self.whole()
        return J.gram(u, J if other is self else other.whole(), v, kernel)

    def whole(self) -> LayerJacobian:
        """The Jacobian that `gram` needs; the layers run once more where this is another."""
        plain = self.layer.chain
        return self.parts[0] if len(self.parts) == 1 and self.chain is plain else plain(self.w, self.x)[1]


def examples(a: Array, axes: int, at: slice) -> Array:
    """Those examples of a : (..., N, *shape), where shape has so many axes."""
    return a[(..., at, *(slice(None),) * axes)]


def joined(parts: list[Array | None], axes: int) -> Array | None:
    """[y_1; y_2] along the examples; None stays None."""
    if parts[0] is None:
        return None
    return array_namespace(*parts).concat(parts, axis=-1 - axes)


@dataclass(frozen=True)
class BoundShared:
    """A chain in its place, and the same arranged for speed, which the shares go through."""

    chain: BoundChain
    fast: BoundChain
    before: Shape
    after: Shape

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.chain.tensors

    @property
    def out_shapes(self) -> tuple[Shape, ...]:
        return self.chain.out_shapes

    def count(self, x: Array) -> int:
        """The number of shares: one where the work is little, or the caller works in the pool, or on a GPU."""
        N = int(x.shape[-1 - len(self.before)])
        size = int(prod(x.shape)) + N * sum(map(prod, self.out_shapes))
        if size < LEAST or inside() or not on_host(array_namespace(x)):
            return 1
        each = max(1, WORTH, PER_WEIGHT * sum(t.size for t in self.tensors))
        return min(N, cores() * min(MOST, -(-size // (cores() * each))))

    def __call__(self, w: Weights, x: Array) -> tuple[Array, LayerJacobian]:
        """The chain's, share by share where that pays; as it is written on a GPU, and in the pool (kernels)."""
        N, count = x.shape[-1 - len(self.before)], self.count(x)
        shares = [slice(i * N // count, (i + 1) * N // count) for i in range(count)]
        chain = self.fast if on_host(array_namespace(x)) and not inside() else self.chain
        results = parallel(lambda at: chain(w, examples(x, len(self.before), at)), shares)
        y = results[0][0] if len(results) == 1 else joined([y for y, _ in results], len(self.after))
        return y, SharedJacobian(self, chain, shares, [J for _, J in results], w, x)


def shared(root: Bound, spec: s.Sequential, before: Shape) -> Bound:
    """The network's chain with the layers that work on images, up to Flatten or GlobalAvgPool, as one BoundShared."""
    if not isinstance(root, BoundChain):
        return root
    shape, count = before, 0
    while count < len(root.layers) and len(shape) > 1:
        after = out_shape(spec.layers[count], shape)
        if len(after) == 1 and has_weights(spec.layers[count]):
            break
        shape, count = after, count + 1
    if not any(map(has_weights, spec.layers[:count])):
        return root
    fast = arranged(spec.layers[:count], root.layers[:count])
    front = BoundShared(BoundChain(root.layers[:count]), BoundChain(fast), before, shape)
    return BoundChain((front, *root.layers[count:]))
