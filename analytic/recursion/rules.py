"""Define `lower`, which turns each layer of a spec into steps of the kernel recursion at infinite width.

    Dense          K' = w^2 K + beta^2          Theta' = w^2 Theta + ratio K' + rest
    activation     K' = E phi(u) phi(u')        Theta' = Theta E phi'(u) phi'(u')           (u, u') ~ N(0, K)
    Residual, Sum  K' = K_1 + K_2               Theta' = Theta_1 + Theta_2
    Product        K' = K_1 K_2                 Theta' = Theta_1 K_2 + K_1 Theta_2

`Affine` defines ratio and rest.  `Step.law` raises UnsupportedLayer unless activations have Gaussian pre-activations,
sums have uncorrelated parts, and products have independent parts.  Lee et al. 2019, suppl. E; Jacot et al. 2018.

To add a layer, subclass `minintk.spec.layers.Layer` and register rules for `minintk.spec.shapes.out_shape` and `lower`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import astuple, dataclass, replace
from functools import reduce, singledispatch
from math import sqrt
from typing import Any, NamedTuple

from analytic.recursion.closed_forms import closed_form
from analytic.recursion.state import Law, Pairs, Program, RowState, Step, columns, run_law, run_pairs, run_rows
from minintk import spec as s
from minintk.arrays import Array, array_namespace
from minintk.spec.parametrization import Parametrization, Role
from minintk.spec.shapes import Site, UnsupportedLayer, out_shape, sites


@singledispatch
def lower(layer: s.Layer, site: Site, parametrization: Parametrization) -> Program:
    """Return the steps of `layer` at `site`, or raise UnsupportedLayer if no infinite-width limit is known.

    `lower` is a `functools.singledispatch` function: ``lower.register`` adds a rule for your own layer.  A rule returns
    steps as defined in `analytic.recursion.state`.

    >>> from minintk import NTK
    >>> [type(step).__name__ for step in lower(s.Sequential(s.Dense(8), s.ReLU()), Site((3,)), NTK())]
    ['Affine', 'Homogeneous']
    """
    raise UnsupportedLayer(
        f"{type(layer).__name__} has no infinite-width kernel: register analytic.lower for it, "
        "or measure the finite network's, minintk.ntk(...)"
    )


# --------------------------------------------------------------------------------------------- mixing


class Mix(NamedTuple):
    """The coefficients A = cos psi and B = sin psi of two parts for each row.

    turn . back = sin((psi_i - psi_j)/2) for two rows i and j.
    tau_a, tau_b : factors of tau that replace A and B if some q = 0 (`RowState.has_zero_rows`), else None.
    """

    a: Array
    b: Array
    turn: Array
    back: Array
    tau_a: Array | None
    tau_b: Array | None


def mix(q1: Array, q2: Array | float, after: RowState, units: tuple[Array, Array] | None) -> Mix:
    """Return A = sqrt(q1 / q) and B = sqrt(q2 / q), q = q1 + q2; A = 1 for zero rows.   units : tau's unit per part."""
    xp, q = array_namespace(after.q), after.q
    if after.has_zero_rows:
        q1, q = (xp.where(after.q > 0, one, 1.0) for one in (q1, q))
    a, b = xp.sqrt(q1 / q), xp.sqrt(q2 / q)
    cos = xp.sqrt((1 + a) / 2)  # cos(psi / 2), a = cos psi
    sin = b / (2 * cos)
    tau_a, tau_b = (None, None) if units is None else (columns(xp, unit / after.scale) for unit in units)
    return Mix(columns(xp, a), columns(xp, b), columns(xp, sin, cos), columns(xp, cos, -sin), tau_a, tau_b)


def mix_pairs(pairs: Pairs, row: Mix, other: Pairs | None = None) -> None:
    """Set c' = A A' c + B B' c2, hence, with every term >= 0,

        p' = A A' p + B B' p2 + D,   r' = A A' r + B B' r2 + D,   D = (1 - A A' - B B') / 2 = sin((psi - psi')/2)^2

    other : pairs of the second part, or None for a bias.  All rows share the bias, so its p2 = 0 and r2 = 1.
    """
    xp, p, r, tau = pairs.xp, pairs.p, pairs.r, pairs.tau
    with pairs.borrow(2) as (w, d):
        pairs.dot(row.a, row.a, w)
        pairs.dot(row.turn, row.back, d)
        d *= d
        p *= w
        p += d
        if r is not None:
            r *= w
            r += d
        if tau is not None:
            tau *= w if row.tau_a is None else pairs.dot(row.tau_a, row.tau_a, w)
        if other is None:
            if r is not None:
                r += pairs.dot(row.b, row.b, w)
        else:
            pairs.dot(row.b, row.b, w)
            for mine, second in ((p, other.p), (r, other.r)):
                if mine is not None:
                    mine += xp.multiply(w, second, out=d)
            if tau is not None:
                if row.tau_b is not None:
                    pairs.dot(row.tau_b, row.tau_b, w)
                tau += xp.multiply(w, other.tau, out=d)
    pairs.clip()


# ---------------------------------------------------------------------------------------------- Dense


class AffineRow(NamedTuple):
    """Coefficients of an `Affine` step.   inverse : 1 / scale', or None if rest = 0.   nonzero : q' > 0, as 1 or 0.

    mix : `Mix` of weights and bias, None if beta2 = 0 and no q or q' is 0; `nonzero` is None if no q or q' is 0.
    """

    mix: Mix | None
    inverse: Array | None
    nonzero: Array | None


@dataclass(frozen=True)
class Affine(Step):
    """Apply weights and bias: K' = w2 K + beta2,   Theta' = w2 Theta + ratio K' + rest.

    Weights have multiplier m, std s and learning-rate scale S; the bias has m_b, s_b and S_b.  With w2 = (m s)^2
    fan_in, beta2 = (m_b s_b)^2, ratio = S / s^2, rest = S_b m_b^2 - ratio beta2, Theta' is the kernel J S J':

        Theta' = w2 Theta + S m^2 fan_in K + S_b m_b^2
    """

    w2: float
    beta2: float
    ratio: float
    rest: float

    def law(self, law: Law) -> Law:
        """Return the law of sums over many new, independent weights: Gaussian and fresh for any input law."""
        return Law(gaussian=True, fresh=True, alike=True, own=True)

    def rows(self, rows: RowState) -> tuple[RowState, AffineRow]:
        xp = array_namespace(rows.q)
        weights = self.w2 * rows.q
        q = weights + self.beta2
        after = rows.to(q, self.w2 * rows.theta + self.ratio * q + self.rest)
        zero_rows = rows.has_zero_rows or after.has_zero_rows
        units = (sqrt(self.w2) * rows.scale, xp.ones_like(q)) if zero_rows else None
        return after, AffineRow(
            mix=mix(weights, self.beta2, after, units) if self.beta2 > 0 or zero_rows else None,
            inverse=None if self.rest == 0 else columns(xp, 1 / after.scale),
            nonzero=columns(xp, xp.where(q > 0, 1.0, 0.0)) if zero_rows else None,
        )

    def pairs(self, pairs: Pairs, row: AffineRow) -> None:
        if row.mix is not None and self.beta2 > 0:
            mix_pairs(pairs, row.mix)
        elif row.mix is not None:
            pairs.scale_tau(row.mix.tau_a)
        self.tangents(pairs, row)

    def tangents(self, pairs: Pairs, row: AffineRow) -> None:
        """Add ratio c' / 2 + rest / (2 scale scale') to tau, with c'/2 = 1/2 - p'."""
        tau = pairs.tau
        if tau is None:
            return
        if self.ratio == 1 and row.nonzero is None:
            tau -= pairs.p
            tau += 0.5
        else:
            with pairs.borrow(2) as (w, nonzero):
                pairs.xp.subtract(0.5, pairs.p, out=w)
                w *= self.ratio
                if row.nonzero is not None:
                    w *= pairs.dot(row.nonzero, row.nonzero, nonzero)
                tau += w
        if row.inverse is not None:
            with pairs.borrow(1) as (w,):
                pairs.dot(row.inverse, row.inverse, w)
                w *= 0.5 * self.rest
                tau += w


def affine(
    layer: s.Dense | s.Convolution, fan_in: int, fan_out: int, site: Site, parametrization: Parametrization
) -> Affine:
    """Return the step of a layer's weights and bias."""
    at = site.place, fan_in // site.shape[-1], site.branches, site.end
    weight = parametrization.row(Role("weight", *at), fan_in, fan_out, float(layer.w_std))
    bias = parametrization.row(Role("bias", *at), fan_in, fan_out, float(layer.b_std))
    if not weight.std > 0:
        raise UnsupportedLayer(f"{layer!r} under {parametrization!r} starts with weights that are all zero: no kernel")
    w2 = (weight.multiplier * weight.std) ** 2 * fan_in
    beta2 = (bias.multiplier * bias.std) ** 2 if layer.b_std > 0 and layer.b_init == "normal" else 0.0
    S, S_b = (row.lr or 0.0 for row in (weight, bias))  # None for Adam's rates, which `kernels.check_rates` rejects
    ratio = S / weight.std**2
    trained = S_b * bias.multiplier**2 if layer.b_std > 0 else 0.0
    return Affine(w2, beta2, ratio, trained - ratio * beta2)


@lower.register
def _(layer: s.Dense, site: Site, parametrization: Parametrization) -> Program:
    return (affine(layer, site.shape[-1], int(layer.width), site, parametrization),)


# ----------------------------------------------------------------------------------------- containers


@lower.register
def _(layer: s.Sequential, site: Site, parametrization: Parametrization) -> Program:
    return tuple(step for inner, place in sites(layer.layers, site) for step in lower(inner, place, parametrization))


@dataclass(frozen=True)
class Fork(Step):
    """Base class of steps that run two programs from the same state and combine the results."""

    branch: Program
    shortcut: Program

    def law(self, law: Law) -> Law:
        """Return the law of a sum.  Cross terms vanish if one part ends in its own weights, which have mean 0."""
        inside = replace(law, fresh=False, own=False)  # fresh and own refer to a part's own weights
        self.check(run_law(self.branch, inside), run_law(self.shortcut, inside))
        one, two = run_law(self.branch, law), run_law(self.shortcut, law)
        return Law(*(a and b for a, b in zip(astuple(one), astuple(two))))

    def check(self, one: Law, two: Law) -> None:
        """Raise UnsupportedLayer if the combined kernel does not follow from the kernels of the two parts."""
        if not (one.fresh or two.fresh):
            raise UnsupportedLayer(
                "Residual or Sum has two parts that are correlated, and neither ends in weights: its kernel is not the "
                "sum of theirs; end one of them in mn.Dense(...)"
            )

    @abstractmethod
    def join(self, one: RowState, two: RowState) -> tuple[RowState, Any]:
        """Return the combined rows, and the coefficients that `join_pairs` needs."""

    @abstractmethod
    def join_pairs(self, pairs: Pairs, row: Any, other: Pairs) -> None:
        """Combine the pairs of the branch with the pairs of the shortcut."""

    def rows(self, rows: RowState) -> tuple[RowState, tuple[Any, Any, Any]]:
        """Return the rows, and the coefficients of the branch, the shortcut and their combination."""
        one, branch = run_rows(self.branch, rows)
        two, shortcut = run_rows(self.shortcut, rows)
        after, both = self.join(one, two)
        return after, (branch, shortcut, both)

    def pairs(self, pairs: Pairs, row: tuple[Any, Any, Any]) -> None:
        branch, shortcut, both = row
        with pairs.copy() as other:
            run_pairs(self.shortcut, other, shortcut)
            run_pairs(self.branch, pairs, branch)
            self.join_pairs(pairs, both, other)


@dataclass(frozen=True)
class ResidualSum(Fork):
    """Add two parts: K' = K_branch + K_shortcut,   Theta' = Theta_branch + Theta_shortcut."""

    def join(self, one: RowState, two: RowState) -> tuple[RowState, Mix]:
        after = one.to(one.q + two.q, one.theta + two.theta, max(one.error, two.error))
        zero_rows = one.has_zero_rows or two.has_zero_rows
        return after, mix(one.q, two.q, after, (one.scale, two.scale) if zero_rows else None)

    def join_pairs(self, pairs: Pairs, row: Mix, other: Pairs) -> None:
        mix_pairs(pairs, row, other)


@dataclass(frozen=True)
class Concatenation(ResidualSum):
    """Concatenate parts: add their kernels, which are already weighted by each part's share of the features."""

    def law(self, law: Law) -> Law:
        """Return the law.  The parts may be correlated, since no feature is a sum of both.  Variances can differ."""
        one, two = run_law(self.branch, law), run_law(self.shortcut, law)
        return Law(False, one.fresh and two.fresh, own=one.own and two.own)


Gains = tuple[Array | None, Array | None]
"""Factors of tau_branch and of tau_shortcut if some q = 0 (`RowState.has_zero_rows`), otherwise (None, None)."""


@dataclass(frozen=True)
class ProductOfParts(Fork):
    """Multiply two parts: K' = K1 K2,   Theta' = Theta1 K2 + K1 Theta2.   Since c' = c1 c2,

    p' = p1 r2 + r1 p2,   r' = p1 p2 + r1 r2,   tau' = tau1 c2 + tau2 c1;   all terms of p' and r' are >= 0.
    """

    def law(self, law: Law) -> Law:
        """Return a non-Gaussian law.  A product's mean over features factorises if one part's features are alike."""
        if not (run_law(self.branch, law).alike or run_law(self.shortcut, law).alike):
            raise UnsupportedLayer(
                "Product multiplies two parts whose features differ in variance (inputs, a Concat, or flattened "
                "pixels): its kernel is not the product of theirs; end one of them in mn.Dense(...)"
            )
        return replace(super().law(law), gaussian=False)

    def check(self, one: Law, two: Law) -> None:
        """Require independent parts f and g, for which E f f' g g' = E f f' E g g', whatever their means."""
        if not (one.own or two.own):
            raise UnsupportedLayer(
                "Product has two parts of the same features, and neither has weights of its own before what it does "
                "with them: its kernel is not the product of theirs; begin or end one of them with mn.Dense(...)"
            )

    def join(self, one: RowState, two: RowState) -> tuple[RowState, Gains]:
        after = one.to(one.q * two.q, one.theta * two.q + one.q * two.theta, one.error + two.error)
        if not (one.has_zero_rows or two.has_zero_rows):
            return after, (None, None)
        xp = array_namespace(after.q)
        first, second = (a.scale * xp.sqrt(b.q) / after.scale for a, b in ((one, two), (two, one)))
        return after, (columns(xp, first), columns(xp, second))

    def join_pairs(self, pairs: Pairs, row: Gains, other: Pairs) -> None:
        xp, (one_gain, two_gain) = pairs.xp, row
        with pairs.borrow(4) as (r1, r2, w, v):
            for one, r in ((pairs, r1), (other, r2)):
                xp.subtract(1, one.p, out=r) if one.r is None else xp.copyto(r, one.r)
            if pairs.tau is not None and other.tau is not None:
                xp.subtract(r2, other.p, out=w)
                pairs.tau *= w if one_gain is None else xp.multiply(w, pairs.dot(one_gain, one_gain, v), out=w)
                xp.subtract(r1, pairs.p, out=w)
                w *= other.tau
                pairs.tau += w if two_gain is None else xp.multiply(w, pairs.dot(two_gain, two_gain, v), out=w)
            if pairs.r is not None:
                xp.multiply(pairs.p, other.p, out=w)
                xp.multiply(r1, r2, out=pairs.r)
                pairs.r += w
            pairs.p *= r2
            r1 *= other.p
            pairs.p += r1
        pairs.clip()


@dataclass(frozen=True)
class Scaling(Affine):
    """Multiply by a constant factor: K' = w2 K,   Theta' = w2 Theta."""

    def law(self, law: Law) -> Law:
        """Return the inputs' law unchanged."""
        return law


def scaling(factor: float) -> Scaling:
    """Return the step of y = factor x."""
    return Scaling(factor * factor, 0.0, 0.0, 0.0)


@lower.register
def _(layer: s.Scale, site: Site, parametrization: Parametrization) -> Program:
    return (scaling(float(layer.factor)),)


@lower.register
def _(layer: s.Residual, site: Site, parametrization: Parametrization) -> Program:
    branch, shortcut = lower(layer.branch, site.branch, parametrization), lower(layer.shortcut, site, parametrization)
    return (ResidualSum(branch, shortcut),)


FORKS: dict[type, type[Fork]] = {s.Sum: ResidualSum, s.Product: ProductOfParts, s.Concat: Concatenation}


@lower.register
def _(layer: s.Branches, site: Site, parametrization: Parametrization) -> Program:
    """Combine two branches at a time.  In a Concat, first scale a part with n_i of n features by sqrt(n_i / n)."""
    programs = [lower(part, replace(site, residuals=0), parametrization) for part in layer]
    if isinstance(layer, s.Concat):
        widths = [out_shape(part, site.shape)[-1] for part in layer]
        programs = [(*one, scaling(sqrt(n / sum(widths)))) for one, n in zip(programs, widths, strict=True)]
    return reduce(lambda one, two: (FORKS[type(layer)](two, one),), programs)


# ---------------------------------------------------------------------------- layers without parameters


@dataclass(frozen=True)
class Masks(Step):
    """Apply dropout, keep = 1 - rate:  K'(x, x) = K(x, x) / keep,  K'(x, x') = K(x, x'),  and likewise for Theta.

    For a pair of rows, c' = keep c, so p' = keep p + rate / 2, r' = keep r + rate / 2 and tau' = keep tau.  Two rows
    have separate masks, even if they are equal.  K'(x, x) appears only on the diagonal of K'(x1), never in K'(x1, x2).
    """

    keep: float

    def law(self, law: Law) -> Law:
        """Return a non-Gaussian law, because a Gaussian times a mask is not Gaussian."""
        return replace(law, gaussian=False)

    def rows(self, rows: RowState) -> tuple[RowState, Array]:
        """Return the rows, and the factor of tau per row: sqrt(keep), or 1 for a row of zeros."""
        after = rows.to(rows.q / self.keep, rows.theta / self.keep)
        return after, columns(array_namespace(rows.q), rows.scale / after.scale)

    def pairs(self, pairs: Pairs, row: Array) -> None:
        for mine in (pairs.p, pairs.r):
            if mine is not None:
                mine *= self.keep
                mine += (1 - self.keep) / 2
        pairs.scale_tau(row)


@lower.register
def _(layer: s.Dropout, site: Site, parametrization: Parametrization) -> Program:
    if site.first:
        raise UnsupportedLayer(
            "Dropout of the inputs has no infinite-width kernel here: all neurons see the same masks, which do not "
            "average out as widths grow; put it after mn.Dense(...), or measure networks, net.with_dropout(rng)"
        )
    return (Masks(1 - float(layer.rate)),)


@dataclass(frozen=True)
class Normalise(Step):
    """Apply layer normalisation.  At infinite width, a layer's features have mean 0 and variance q:

        K' = K / sqrt((q + eps) (q' + eps)),   and likewise for Theta

    The statistics do not depend on the weights, so their derivatives vanish.  Angles and tau do not change.
    If the statistics include pixels, q is the mean over them.   pixels : the included axes, -2 (columns) and -3 (rows).
    """

    eps: float
    pixels: tuple[int, ...] = ()

    def law(self, law: Law) -> Law:
        """Return `law`; raise UnsupportedLayer unless features are Gaussian, and so have mean 0."""
        if not law.gaussian:
            raise UnsupportedLayer(
                "LayerNorm acts on features that are not Gaussian with mean 0 at infinite width (the inputs "
                "themselves, an activation's outputs, or flattened pixels): put it right after a Dense or "
                "convolutional layer"
            )
        return law

    def gain(self, q: Array) -> Array:
        """Return 1 / (q + eps)."""
        xp = array_namespace(q)
        if self.eps == 0 and bool(xp.any(q == 0)):
            raise ValueError("LayerNorm(eps=0) divides by the variance of features that are all 0: take eps > 0")
        return 1 / (q + self.eps)

    def rows(self, rows: RowState) -> tuple[RowState, Array | None]:
        """Return the rows, and the factor of tau per row if some q = 0 (`RowState.has_zero_rows`), else None."""
        xp, gain = array_namespace(rows.q), self.gain(rows.q)
        after = rows.to(rows.q * gain, rows.theta * gain)
        return after, columns(xp, rows.scale * xp.sqrt(gain) / after.scale) if rows.has_zero_rows else None

    def pairs(self, pairs: Pairs, row: Array | None) -> None:
        pairs.scale_tau(row)


@lower.register
def _(layer: s.LayerNorm, site: Site, parametrization: Parametrization) -> Program:
    if -1 not in layer.over:
        raise UnsupportedLayer(
            f"{layer!r} has no infinite-width kernel: statistics of one channel over its pixels stay random, however "
            "many channels there are; normalise over these too, axes=(-3, -2, -1), or measure the finite network's "
            "kernel, minintk.ntk(...)"
        )
    return (Normalise(float(layer.eps), tuple(a for a in layer.over if a != -1)),)


@lower.register
def _(layer: s.Identity, site: Site, parametrization: Parametrization) -> Program:
    return ()


@lower.register
def _(layer: s.Activation, site: Site, parametrization: Parametrization) -> Program:
    return (closed_form(layer),)
