"""Attention on images and sequences: sums over positions by weights that each image has of its own.

    A(x)        = zeta(G),  G = w_k^2 (K_0(x, x) + P)       of the inputs' kernel K_0; P: of position embeddings
    K'          = A(x) K A(x')'                             Theta' = A(x) Theta A(x')'

in place of the sums over windows of a pooling, between the affine steps of values and outputs.  So it is for attention
by d_k^-1 with W_q = W_k: G = k k' / d_k, a mean over d_k features, converges to a constant.  The outputs depend on G
through h d_v terms of random sign, and each key moves it by 1 / d_k, so keys and embeddings add nothing to Theta, nor
do earlier layers through them (Hron et al. 2020, section 3.2 and appendix B).

For d_k^-1/2 and independent W_q, G stays Gaussian, with mean 0 and covariance (K_0 + P)(s, s') (K_0 + P)(t, t'): K' is
then an expectation of zeta at correlated Gaussians, for which softmax has no closed form; nor has neural-tangents one.

A needs K of each image with itself, all positions with all, which is recorded first, in float64 (`Mixing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt
from typing import NamedTuple

from analytic.images.fields import Field, Pixels
from analytic.images.memory import PixelValues
from analytic.images.pixel_pairs import Selves
from analytic.images.rules import Mixing, grid
from analytic.images.steps import EQUAL_AFTER_POOLING, Tile, add_pending, apply, half_variances, prepare
from analytic.vectors.rules import affine, lower
from analytic.vectors.state import Law, Program
from minintk import spec as s
from minintk.arrays import Array, array_namespace, to_library
from minintk.layers.activation import Pointwise, pointwise
from minintk.layers.attention import attention, part_sites, position_covariance
from minintk.spec.parametrization import Parametrization, Role
from minintk.spec.shapes import Shape, Site, UnsupportedLayer


@dataclass(frozen=True)
class Attend(Mixing):
    """K' = A(x) K A(x')', A = zeta(gain K + scale R).

    shape : of one example.   reach : R's.   zeta : None for softmax.   masked : leave out positions of variance 0.
    """

    shape: Shape
    gain: float
    scale: float
    reach: float
    zeta: Pointwise | None
    masked: bool

    @property
    def recorded(self) -> tuple[int, int]:
        return (prod(grid(self.shape)),) * 2

    @property
    def out(self) -> tuple[int, int]:
        """(H, W) after the step."""
        return grid(self.shape)

    def law(self, law: Law) -> Law:
        """Sums of Gaussians are Gaussian, channel by channel."""
        return law

    def weights(self, K: Array, q: Array) -> Array:
        """A : (n, L, L), for K : (n, L, L) of each image with itself and its variances q : (n, L)."""
        xp = array_namespace(K)
        G = self.gain * K + self.scale * to_library(position_covariance(self.shape, self.reach), xp)
        return attention(G[:, None], self.zeta, q > 0 if self.masked else None)[0][:, 0]


@dataclass(frozen=True)
class MaskedMean(Attend):
    """The mean over positions of variance > 0; the other fields have no use."""

    @property
    def out(self) -> tuple[int, int]:
        return 1, 1

    def weights(self, K: Array, q: Array) -> Array:
        """A : (n, 1, L)."""
        xp = array_namespace(K)
        m = xp.astype(q > 0, K.dtype)[:, None]
        return m / xp.maximum(xp.sum(m, axis=-1, keepdims=True), 1.0)


class AttendCoefficients(NamedTuple):
    """A of each image; for each output position, halved and in the unit: own, the D of its sum with itself.

    share : the sum of its weights; mean : of q / 2 over them.   noise : what roundings may leave of D between equals.
    """

    before: PixelValues | None
    A: Array
    own: PixelValues
    noise: PixelValues
    share: PixelValues
    mean: PixelValues
    out: tuple[int, int]


@prepare.register
def _(step: Attend, pixels: Pixels, tile: Tile) -> tuple[Pixels, AttendCoefficients]:
    known = next(tile.pools)
    assert known is not None  # recorded, as `analytic.images.rules.is_nonlinear` says
    (d, theta), xp, layout = known, tile.layout.xp, tile.layout
    q = pixels.q.reshape((pixels.q.shape[0], -1))
    A = step.weights((q[:, :, None] + q[:, None, :]) / 2 - pixels.unit * d, q)
    share, mean = xp.sum(A, axis=-1), xp.matmul(A, q[:, :, None])[..., 0]
    own, theta, noise = (xp.sum(xp.matmul(B, a) * B, axis=-1) for B, a in ((A, d), (A, theta), (xp.abs(A), d)))
    noise = noise * (EQUAL_AFTER_POOLING * sqrt(d.shape[-1]) * float(xp.finfo(layout.dtype).eps))
    q = xp.maximum(share * mean - own * pixels.unit, 0.0)
    after = Pixels(of(q, step.out), of(theta, step.out), pixels.unit, pixels.error)
    own, noise, share, mean = (of(v, step.out) for v in (own / 2, noise / 2, share, mean / (2 * pixels.unit)))
    return after, AttendCoefficients(
        before=half_variances(pixels, layout),
        A=xp.astype(A, layout.dtype),
        own=layout.spread(own),
        noise=layout.spread(noise),
        share=layout.spread(share),
        mean=layout.spread(mean),
        out=step.out,
    )


def of(a: Array, out: tuple[int, int]) -> Array:
    """(n, L) as (n, H, W)."""
    return a.reshape((a.shape[0], *out))


@apply.register
def _(step: Attend, row: AttendCoefficients, field: Field) -> None:
    """D' = A D A' - own / 2 - own' / 2 + (share - share') (mean q - mean q') / 2, and Theta' = A Theta A'."""
    add_pending(field, row.before)
    xp, B, out = field.xp, field.sizes[1], field.new(row.out)
    left, right = row.A[field.j if isinstance(field, Selves) else field.i.start], row.A[field.j].swapaxes(-1, -2)
    for a, to in zip(field.a[: field.live], out[: field.live], strict=True):
        pairs = a.reshape((left.shape[-1], B, -1))
        to[...] = xp.matmul(xp.matmul(left, pairs.swapaxes(0, 1)), right).swapaxes(0, 1).reshape(to.shape)
    field.swap_in(out, row.out)
    for piece in field.pieces():
        d = field.d[piece]
        own, noise, share, mean = (field.pick(values, piece) for values in (row.own, row.noise, row.share, row.mean))
        d -= own[0]
        d -= own[1]
        d += (share[0] - share[1]) * (mean[0] - mean[1])
        d *= xp.abs(d) > noise[0] + noise[1]


@lower.register
def _(layer: s.GlobalSelfAttention, site: Site, parametrization: Parametrization) -> Program:
    if layer.scaling == "sqrt":
        raise UnsupportedLayer(
            "GlobalSelfAttention(scaling='sqrt') has no infinite-width kernel in closed form: its weights stay random, "
            "and softmax of correlated Gaussians has no formula; take scaling='linear', or measure the finite "
            "network's kernel, minintk.ntk(...)"
        )
    at, parts = part_sites(layer, site), layer.parts
    key, value, output = (
        affine(parts[name], at[name].shape[-1], parts[name].channels, at[name], parametrization)
        for name in ("key", "value", "output")
    )
    C = site.shape[-1]
    row = parametrization.row(Role("bias", at["key"].place, branches=site.branches), C, C, float(layer.positions))
    scale = key.w2 * (row.multiplier * row.std) ** 2 if layer.positions > 0 else 0.0
    zeta = None if layer.zeta == "softmax" else pointwise(layer.zeta)
    return value, Attend(site.shape, key.w2 / value.w2, scale, float(layer.reach), zeta, layer.masked), output


@lower.register
def _(layer: s.MaskedAvgPool, site: Site, parametrization: Parametrization) -> Program:
    return (MaskedMean(site.shape, 0.0, 0.0, 0.0, None, True),)
