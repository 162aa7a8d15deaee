"""Compute attention on images and sequences: sums over positions, with weights that depend on each image.

    K' = A(x) K A(x')',   Theta' = A(x) Theta A(x')',   A(x) = zeta(w_k^2 K_0(x, x)),   K_0 : the inputs' kernel

Sums weighted by A, between the affine steps of values and outputs, replace a pooling's sums over windows.  With scaling
d_k^-1 and W_q = W_k, G = k k' / d_k is a mean over the keys' d_k features and converges to a constant.  Outputs depend
on G through h d_v terms of random sign (h heads, values of size d_v), and each key feature changes G by order 1 / d_k.
Hence Theta has no term for the keys, nor for earlier layers through the keys.  A is computed from K_0 in float64.

With scaling d_k^-1/2, independent W_q and a growing number of heads, G stays Gaussian, with mean 0 and E G_as G'_bt =
K_q(a, b) K_k(s, t).  K_q and K_k are the covariances of queries and keys.  K' is an expectation of zeta at
correlated Gaussians and has no closed form for softmax (Hron et al. 2020, eq. (16)).  For the identity,
    K'(a, b) = K_q(a, b) sum_st K_k(s, t) K_v(s, t)    K_v : kernel of the values;  Theta' by the product rule
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from analytic.images.fields import Field, Pixels
from analytic.images.memory import PixelValues
from analytic.images.pixel_pairs import Selves
from analytic.images.rules import ImageStep, Mixing, Window, grid, pool
from analytic.images.steps import PoolCoefficients, Tile, add_pending, apply, half_variances, pooled_difference, prepare
from analytic.recursion.rules import ProductOfParts, lower, scaling
from analytic.recursion.state import Law, Program
from minintk import spec as s
from minintk.arrays import Array, array_namespace
from minintk.layers.activation import Pointwise, pointwise
from minintk.layers.attention import attention, reading
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Site, UnsupportedLayer
from minintk.spec.windows import Axis


@dataclass(frozen=True)
class Attend(Mixing):
    """Compute K' = A(x) K A(x')', A = zeta(gain K).   zeta : None for softmax.   masked : omit pixels with q = 0."""

    grid: tuple[int, int]
    gain: float = 1.0
    zeta: Pointwise | None = None
    masked: bool = True

    @property
    def recorded(self) -> tuple[int, int]:
        """Return the shape of D and Theta over all pairs of pixels."""
        return prod(self.grid), prod(self.grid)

    def law(self, law: Law) -> Law:
        """Return `law` unchanged: in each channel, sums of Gaussians are Gaussian."""
        return law

    def weights(self, K: Array, q: Array) -> tuple[Array, tuple[int, int]]:
        """Return A : (n, L, L), and (H, W) after the step, given K : (n, L, L) and q : (n, L) of each image."""
        with np.errstate(over="ignore", invalid="ignore"):  # A is checked below
            A = attention(self.gain * K[:, None], self.zeta, q > 0 if self.masked else None)[0][:, 0]
        if not bool(array_namespace(A).all(array_namespace(A).isfinite(A))):
            raise ValueError("GlobalSelfAttention: weights zeta(G) are not finite; scale the inputs, or qk_std, down")
        return A, self.grid


class MaskedMean(Attend):
    """Average over the positions whose variance is positive."""

    def weights(self, K: Array, q: Array) -> tuple[Array, tuple[int, int]]:
        """Return A : (n, 1, L), the equal weights of positions with q > 0, and the new grid (1, 1)."""
        xp = array_namespace(K)
        m = xp.astype(q > 0, K.dtype)[:, None]
        return m / xp.maximum(xp.sum(m, axis=-1, keepdims=True), 1.0), (1, 1)


@prepare.register
def _(step: Attend, pixels: Pixels, tile: Tile) -> tuple[Pixels, PoolCoefficients]:
    """Compute A's `share`, `mean` and `own`, as for pooling windows, from D and Theta of each image with itself."""
    known = next(tile.pools)
    assert known is not None  # recorded earlier, see `analytic.images.rules.is_nonlinear`
    (d, theta), xp, layout = known, tile.layout.xp, tile.layout
    q = pixels.q.reshape((pixels.q.shape[0], -1))
    A, grid = step.weights((q[:, :, None] + q[:, None]) / 2 - pixels.unit * d, q)
    share, mean = xp.sum(A, axis=-1), xp.matmul(A, q[..., None])[..., 0]
    own, theta = (xp.sum(xp.matmul(A, a) * A, axis=-1) for a in (d, theta))
    q = xp.maximum(share * mean - own * pixels.unit, 0.0)
    q, theta, own, share, mean = (a.reshape((-1, *grid)) for a in (q, theta, own, share, mean / (2 * pixels.unit)))
    before, weights = half_variances(pixels, layout), xp.astype(A, layout.dtype)
    own, share, mean = (layout.spread(a) for a in (own / 2, share, mean))
    after = Pixels(q, theta, pixels.unit, pixels.error)
    return after, PoolCoefficients(before, (weights, weights), own, share, mean, grid)


@apply.register
def _(step: Attend, row: PoolCoefficients, field: Field) -> None:
    """Sum D and Theta with weights from both images, then compute D' as after a pooling."""
    add_pending(field, row.before)
    xp, (A, _), L, out, B = field.xp, row.T, prod(field.grid), field.new(row.grid), field.sizes[1]
    left, right = A[field.j if isinstance(field, Selves) else field.i], A[field.j].swapaxes(-1, -2)
    for a, to in zip(field.a[: field.live], out[: field.live], strict=True):
        if isinstance(field, Selves):
            half = xp.matmul(left, a.reshape((L, B, L)).swapaxes(0, 1))
        else:  # one product for each x with all x', and one for each x' with all x
            half = xp.matmul(left, a.reshape((-1, L, B * L))).reshape((-1, B, L)).swapaxes(0, 1)
        to.reshape((half.shape[1], B, -1)).swapaxes(0, 1)[...] = xp.matmul(half, right)
    field.swap_in(out, row.grid)
    pooled_difference(row, field, field.layout.dtype)


@dataclass(frozen=True)
class Spread(ImageStep):
    """Broadcast the values of one pixel over a grid."""

    grid: tuple[int, int]

    def law(self, law: Law) -> Law:
        return law


@prepare.register
def _(step: Spread, pixels: Pixels, tile: Tile) -> tuple[Pixels, PixelValues | None]:
    q, theta = (tile.layout.xp.broadcast_to(v, (v.shape[0], *step.grid)) for v in (pixels.q, pixels.theta))
    return Pixels(q, theta, pixels.unit, pixels.error), half_variances(pixels, tile.layout)


@apply.register
def _(step: Spread, before: PixelValues | None, field: Field) -> None:
    add_pending(field, before)
    out, live, P, (A, B) = field.new(step.grid), field.live, prod(step.grid), field.sizes
    out[:live].reshape((live, A, P, B, P))[...] = field.a[:live].reshape((live, A, 1, B, 1))
    field.swap_in(out, step.grid)


@lower.register
def _(layer: s.GlobalSelfAttention, site: Site, parametrization: Parametrization) -> Program:
    read, output, before, after = reading(layer, site)
    key, *queries, value = (lower(part, before, parametrization) for part in read)
    shape, end = grid(site.shape), lower(output, after, parametrization)
    if layer.scaling == "sqrt":
        if not isinstance(layer.zeta, s.Identity):
            raise UnsupportedLayer(
                "GlobalSelfAttention(scaling='sqrt') has an infinite-width kernel for zeta=mn.Identity() alone: its "
                "weights stay random, and others of correlated Gaussians, softmax too, have no formula; take "
                "scaling='linear', or measure the finite network's kernel, minintk.ntk(...)"
            )
        (H, W), one = shape, (ProductOfParts(key, value),)
        total = (*one, *pool((Axis(H, H), Axis(W, W))), scaling(H * W), Spread(shape)) if H * W > 1 else one
        return (ProductOfParts(queries[0], total), *end)
    (keys,), (values,) = key, value
    assert isinstance(keys, Window)
    assert isinstance(values, Window)
    zeta = None if layer.zeta == "softmax" else pointwise(layer.zeta)
    return (values, Attend(shape, keys.affine.w2 / values.affine.w2, zeta, layer.masked), *end)


@lower.register
def _(layer: s.MaskedAvgPool, site: Site, parametrization: Parametrization) -> Program:
    return (MaskedMean(grid(site.shape)),)
