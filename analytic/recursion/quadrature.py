"""Compute the dual activation of any phi by a Hermite (Mehler) series with an error bound.

With z ~ N(0, 1), s = sqrt(q) and the orthonormal Hermite polynomials h_n,

    a_n(s) = E phi(s z) h_n(z),    b_n(s) = E phi'(s z) h_n(z)
    E phi(u) phi(u')   = sum_n a_n(s) a_n(s') c^n,         E phi'(u) phi'(u') = sum_n b_n(s) b_n(s') c^n

The sums end at n_max.  At c = 1 the omitted terms sum to E phi^2 - sum a_n^2 (Parseval), which bounds their sum at
every c.  One extra term represents the omitted terms.  Its degree is n_max + 1, or n_max for the even phi' of an odd
phi.  In terms of p = (1 - c)/2, with `a` normalised to sum a_n^2 = 1, every term is >= 0 if c >= 0 and s = s':

    p' = (1 - c')/2 = p sum_k W_k c^k + |a(s) - a(s')|^2 / 4,       W_k = sum over n > k of a_n(s) a_n(s')

The a_n and b_n are computed by quadrature on panels of the z axis, graded towards 0 if s is large and split at kinks.
Sources: Daniely et al. 2016 (the series) and Mehler 1866.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from math import ceil, exp, floor, log2, pi, sqrt
from typing import Any, NamedTuple

import numpy as np

from analytic.recursion.interpolation import (
    LARGEST_DEGREE,
    Function,
    by_rows,
    chebyshev,
    interpolated,
    legendre,
)
from analytic.recursion.state import Distances, Dual, Pairs, RowState, Take, distances_between, taken
from analytic.recursion.steep import Steep
from minintk.arrays import Array, array_namespace, to_host, to_library
from minintk.layers.activation import Pointwise, hermite_polynomials
from minintk.threads import single_threaded_blas

NODES_PER_PANEL = 20
"""Gauss-Legendre nodes per panel."""
END_OF_AXIS, LAST_END = 9.5, 38.0
"""The z axis ends at END_OF_AXIS, where the density is 1e-20, or further out, up to LAST_END, if phi grows fast."""
MANY_DEGREES = 256
"""The degree to try first.  It suffices for most series; other series end at LARGEST_DEGREE or before."""
NEGLIGIBLE_LOSS = {8: 4e-15, 4: 1e-8}
"""{bytes per number: relative size of the omitted terms below which a series is long enough}."""
LONGEST_STRETCH = 5.5
"""An interpolation covers at most this range of log s, which needs a degree of about 100."""
SMALLEST_SCALE = 1e-17
"""For s below this, phi(s z) = phi(0) to the last digit."""
MANY_NORMS = 64
"""If more than this many norms lie within a factor of e, we interpolate coefficients, often at 17 or 33 nodes."""


def panels(f: Function, s: Array) -> tuple[float, ...]:
    """Return the ends of panels of the z axis for f(s z); panel widths double from about 0.5 / s up to 0.5.

    The last end is at least END_OF_AXIS; beyond it, f(s z)^2 times the density is below rounding for the largest s.
    """
    xp, top = array_namespace(s), s.max()
    z = xp.arange(0, LAST_END, 0.5, dtype=xp.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        mass = (f(z * top) ** 2 + f(-z * top) ** 2) * xp.exp(-z * z / 2)
    mass = xp.where(xp.isfinite(mass), mass, 0.0)
    end = max(END_OF_AXIS, 0.5 + float(xp.max(xp.where(mass > 1e-18 * xp.sum(mass), z, 0.0))))
    near = 0.5 ** np.arange(1.0, 2.0 + ceil(log2(max(float(top), 1.0))))
    right = (*near[::-1].tolist(), *np.arange(1.0, end + 0.5, 0.5).tolist())
    return (*(-z for z in right[::-1]), 0.0, *right)


def axis(
    xp: Any, s: Array, kinks: tuple[float, ...], panels: tuple[float, ...], nodes: int = NODES_PER_PANEL
) -> tuple[Array, Array]:
    """Return nodes z and weights of E f(z), both (1, K) for all rows, or (N, K) if there are kinks other than 0."""
    ends = xp.asarray(panels, dtype=xp.float64)[None, :]
    moving = [kink for kink in kinks if kink != 0]
    if moving:
        reach = xp.maximum(s, 1e-300)
        at = xp.stack([xp.clip(kink / reach, panels[0], panels[-1]) for kink in moving], axis=1)
        ends = xp.sort(xp.concatenate((xp.broadcast_to(ends, (s.shape[0], ends.shape[1])), at), axis=1), axis=1)
    x, w = (to_library(a, xp) for a in legendre(nodes))
    middle, half = (ends[:, 1:] + ends[:, :-1]) / 2, (ends[:, 1:] - ends[:, :-1]) / 2
    z = (middle[..., None] + half[..., None] * x).reshape((ends.shape[0], -1))
    w = (half[..., None] * w).reshape((ends.shape[0], -1))
    return z, w * xp.exp(-z * z / 2) / sqrt(2 * pi)


def mean_square(f: Function, s: Array, kinks: tuple[float, ...] = (), nodes: int = NODES_PER_PANEL) -> Array:
    """Return E f(s z)^2, (N,)."""
    xp, ends = array_namespace(s), panels(f, s)

    def work(s: Array) -> Array:
        z, w = axis(xp, s, kinks, ends, nodes)
        return xp.sum(f(s[:, None] * z) ** 2 * w, axis=1)

    return by_rows(work, s, 1000)


def hermite(f: Function, s: Array, degree: int, kinks: tuple[float, ...]) -> Array:
    """Return a_n(s) = E f(s z) h_n(z), n = 0 ... degree, (N, degree + 1)."""
    xp, ends = array_namespace(s), panels(f, s)
    top = MANY_DEGREES if degree <= MANY_DEGREES else LARGEST_DEGREE
    basis = None if any(kinks) else to_library(hermite_basis(ends, top)[:, : degree + 1], xp)

    def work(s: Array) -> Array:
        z, w = axis(xp, s, kinks, ends)
        values = f(s[:, None] * z) * w
        if basis is not None:
            return values @ basis
        return xp.stack([xp.sum(values * h, axis=1) for h in hermite_polynomials(xp, z, degree)], axis=1)

    return by_rows(work, s, 1000)


@lru_cache(maxsize=8)
def hermite_basis(panels: tuple[float, ...], degree: int) -> np.ndarray[Any, Any]:
    """Return h_n at the nodes of `axis` without kinks, (K, degree + 1), cached because most series need them."""
    z, _ = axis(np, np.ones(1), (), panels)
    return np.stack([h[0] for h in hermite_polynomials(np, z, degree)], axis=1)


def rounding(f: Function, x: Array) -> Array:
    """Return the change of f if x changes by two rounding errors.  This covers rounding of x and cancellation in f."""
    return f(x) - f(x * (1 + 2**-51))


Phi = Callable[[Any, Array], Array]
"""(xp, x) -> phi(x), elementwise."""


def mismatch(phi: Phi, variance: Phi, s: Array, grid: float = 0.0) -> Distances | None:
    """Return `Distances` of vectors y_i with |y_i - y_j|^2 = E (phi(s_i z)/sqrt v_i - phi(s_j z)/sqrt v_j)^2.

    Return None if all s are equal.  phi is smooth, or has its only kink at 0.  variance : (xp, s^2) -> v.
    grid : spacing, in log s, of possible ends of a `norm_curve`, so that other calls can reuse the curve; 0 to disable.

    The vectors have one entry per quadrature node and form a smooth curve in log s.  On each stretch of log s, we
    interpolate the curve (Chebyshev), and then represent it by its components along the first principal axes.
    """
    xp = array_namespace(s)
    log_s = xp.log(s)
    low, high = float(log_s.min()), float(log_s.max())
    if low == high:
        return None
    if grid:
        low, high = grid * floor(low / grid), grid * ceil(high / grid)
    parts = (kept_curve if grid else norm_curve)(phi, variance, low, high)
    if len(parts) == 1:
        return distances_between(xp, interpolated(to_library(parts[0], xp), log_s, low, high))
    ends, y = stretches(low, high), xp.empty((s.shape[0], parts[0].shape[1]), dtype=xp.float64)
    number = xp.searchsorted(xp.asarray(ends[1:-1]), log_s)
    for k, part in enumerate(parts):
        mine = xp.nonzero(number == k)[0]
        if mine.shape[0]:
            y[mine] = interpolated(to_library(part, xp), log_s[mine], *ends[k : k + 2])
    return distances_between(xp, y)


def stretches(low: float, high: float) -> list[float]:
    """Return the ends of stretches that cover [low, high] in log s."""
    return [float(end) for end in np.linspace(low, high, ceil((high - low) / LONGEST_STRETCH) + 1)]


def norm_curve(phi: Phi, variance: Phi, low: float, high: float) -> list[np.ndarray[Any, Any]]:
    """Interpolate the vectors y of `mismatch`; return coefficients (degree + 1, principal axes) for each stretch."""
    top, f = np.exp(np.asarray([high])), partial(phi, np)
    z, w = axis(np, top, (), panels(f, top))

    def curve(s: Array) -> Array:
        return f(s[:, None] * z) * np.sqrt(w) / np.sqrt(variance(np, s * s))[:, None]

    ends, centre = stretches(low, high), curve(np.exp(np.asarray([low])))
    parts = [chebyshev(np, lambda s: curve(s) - centre, *pair) for pair in pairwise(ends)]
    axes = principal(np.concatenate(parts))
    return [part @ axes for part in parts]


kept_curve = lru_cache(maxsize=64)(norm_curve)
"""Cached `norm_curve`: the curve depends only on phi, its variance and the ends, not on the rows."""


def of_norms(curve: Function, s: Array) -> Array:
    """Return curve(s), one row for each s, interpolated in log s if many s lie close together."""
    xp = array_namespace(s)
    log_s = xp.log(s) if s.shape[0] > MANY_NORMS else s
    ends = float(log_s.min()), float(log_s.max())
    if s.shape[0] <= MANY_NORMS or not 0 < ends[1] - ends[0] < 1:
        return curve(s)
    return interpolated(chebyshev(xp, curve, *ends), log_s, *ends)


def principal(vectors: Array) -> Array:
    """Return the vectors' principal axes, as columns.  Omit axes of pure rounding error, but keep at least one axis."""
    xp = array_namespace(vectors)
    basis, within = xp.linalg.qr(vectors.T)  # the vectors are few and long, so `within` is small and square
    axes, size, _ = xp.linalg.svd(within)
    return basis @ axes[:, : max(1, int(xp.sum(size > 1e-15)))]


class QuadratureRow(NamedTuple):
    """Store a_n / sqrt v and b_n sqrt(q / v), (n_max + 2, N).  The last degree represents all omitted degrees.

    one_variance : True if all q are equal up to `RowState.spread`; a and b then have one column, for the middle q.
    distances : `Distances` between the rows' phi(s z) / sqrt v, or None if one_variance.
    used_a, used_b : True for degrees with a nonzero coefficient.   odd : True if phi is odd: `a` has only odd degrees.
    short : the coefficients of the degrees that float32 needs; its own `short` is None.
    steep : duals near c = 1 and c = -1 from `Steep.of`, in place of a truncated series; None if variances differ.
    """

    one_variance: bool
    a: Array
    b: Array
    used_a: tuple[bool, ...]
    used_b: tuple[bool, ...]
    odd: bool
    distances: Distances | None
    short: QuadratureRow | None = None
    steep: Steep | None = None

    def taken(self, take: Take) -> QuadratureRow:
        """Return the coefficients of the rows that `take` selects."""
        if self.one_variance:
            return self
        a, b, short = take(self.a, axis=1), take(self.b, axis=1), self.short and self.short.taken(take)
        return self._replace(a=a, b=b, distances=taken(self.distances, take), short=short)


@dataclass(frozen=True)
class Quadrature(Dual):
    """Step of any activation, given phi and phi'.  `RowState.error` is relative to sqrt(k(x, x) k(x', x')).

    If all norms are equal, up to rounding, the rows share one series.  Each log q differs from the middle one by at
    most spread / 2, four rounding errors of the inputs.  The error is this difference times dW_k / d log q = O(1).
    """

    pointwise: Pointwise

    def variance(self, xp: Any, q: Array) -> Array:
        """Return E phi(u)^2 for a phi with no kink except at 0."""
        return mean_square(partial(self.pointwise.phi, xp), xp.sqrt(q))

    def rows(self, rows: RowState) -> tuple[RowState, QuadratureRow]:
        with single_threaded_blas():  # otherwise, sums over nodes would depend on the number of threads
            return self._rows(rows)

    def _rows(self, rows: RowState) -> tuple[RowState, QuadratureRow]:
        xp, q, kinks = array_namespace(rows.q), rows.q, self.pointwise.kinks
        phi, dphi = partial(self.pointwise.phi, xp), partial(self.pointwise.derivative, xp)
        (low, high), one_variance = rows.ends, rows.alike
        s = xp.sqrt(xp.asarray([low, high, (low + high) / 2]) if one_variance else q)
        v, dv = mean_square(phi, s, kinks), mean_square(dphi, s, kinks)
        self.check(xp, s, v, dv)
        every_v, every_dv = v, dv
        if one_variance:
            part = (q - low) / (high - low if high > low else 1.0)
            every_v, every_dv = (first + part * (last - first) for first, last in (v[:2], dv[:2]))
            s, v, dv = s[2:], v[2:], dv[2:]
        zero = v == 0  # for a zero row with phi(0) = 0, any coefficients give the kernel 0
        safe_s, safe_dv = xp.where(zero, 1.0, s), xp.where(dv == 0, 1.0, dv)
        ordered = xp.sort(s)
        degree, least, left, lost = self.degree(phi, dphi, ordered[:: max(1, s.shape[0] // 20)], ordered[-1:])
        steep = Steep.of(self.pointwise, float(s[0]), float(v[0]), left) if one_variance else None
        error = max(left if steep is None else steep.error, lost)
        degree, least = degree + degree % 2, least + least % 2  # even, because an odd phi needs an odd extra term

        def normalised(f: Function) -> Function:
            def coefficients(s: Array) -> Array:
                v = mean_square(f, s, kinks)
                return hermite(f, s, degree, kinks) / xp.sqrt(xp.where(v > 0, v, 1.0))[:, None]

            return coefficients

        a = of_norms(normalised(phi), safe_s)
        constant = dphi(0 * s)[:, None] * xp.eye(1, degree + 1, dtype=xp.float64)  # phi' of a row of zeros
        b = xp.where(zero[:, None], constant / xp.sqrt(safe_dv)[:, None], of_norms(normalised(dphi), safe_s))
        after = rows.to(every_v, rows.theta * every_dv, rows.error + error)
        slope = xp.sqrt(dv)[:, None] * (rows.scale / after.scale)[: s.shape[0], None]
        if one_variance:
            distances = None
        elif any(kinks):
            distances = distances_between(xp, xp.concatenate((a, remainder(xp, a)), axis=1))
        else:
            distances = mismatch(self.pointwise.phi, self.variance, xp.maximum(safe_s, SMALLEST_SCALE))

        def series(n: int, short: QuadratureRow | None) -> QuadratureRow:
            """Return the coefficients up to degree n, plus one that represents all higher degrees."""
            first = [xp.concatenate((h[:, : n + 1], remainder(xp, h[:, : n + 1])), axis=1) for h in (a, b)]
            first[1] *= slope
            odd = not bool(xp.any(xp.abs(first[0][:, ::2]) > 1e-14))  # rounding in BLAS is below 1e-15
            if odd:  # then phi' and n are even
                first[1][:, n], first[1][:, n + 1] = xp.hypot(first[1][:, n], first[1][:, n + 1]), 0
            used_a, used_b = (tuple(bool(u) for u in xp.any(xp.abs(h) > 1e-16, axis=0)) for h in first)
            one, two = (xp.asarray(h.T, copy=True) for h in first)
            return QuadratureRow(one_variance, one, two, used_a, used_b, odd, distances, short, steep)

        return after, series(degree, series(least, None))

    def degree(self, phi: Function, dphi: Function, few: Array, top: Array) -> tuple[int, int, float, float]:
        """Return n_max, n_max for float32, and estimates of the relative errors of series and integrals.

        few : some of the values s.   top : (1,), the largest s.
        """
        xp = array_namespace(few)
        few = xp.concatenate((few[few > 0], top[top > 0]))
        if few.shape[0] == 0:
            return 1, 1, 0.0, 0.0
        lost, squares = 0.0, [mean_square(f, few, self.pointwise.kinks) for f in (phi, dphi)]
        for f, v in zip((phi, dphi), squares):
            coarse = mean_square(f, few, self.pointwise.kinks, NODES_PER_PANEL - 4)
            end = panels(f, few)[-1]
            cut = exp(-(end**2) / 2) * (f(few * end) ** 2 + f(-few * end) ** 2)  # estimates the part beyond `end`
            noise = mean_square(partial(rounding, f), few, self.pointwise.kinks)
            missed = xp.abs(v - coarse) + cut + 2 * xp.sqrt(noise * v)
            lost = max(lost, float(xp.max(missed / xp.where(v > 0, v, 1.0))))
        degree = MANY_DEGREES
        while True:
            left = xp.zeros(degree + 1, dtype=xp.float64)
            for f, v in zip((phi, dphi), squares):
                a = hermite(f, few, degree, self.pointwise.kinks) / xp.sqrt(xp.where(v > 0, v, 1.0))[:, None]
                nonzero = xp.astype(v > 0, xp.float64)[:, None]
                left = xp.maximum(left, xp.max(xp.abs(nonzero - xp.cumulative_sum(a * a, axis=1)), axis=0))
            long, short = (to_host(left) < loss for loss in (NEGLIGIBLE_LOSS[8], NEGLIGIBLE_LOSS[4]))
            if long.any() or degree == LARGEST_DEGREE:
                most, least = (max(1, int(one.argmax())) if one.any() else degree for one in (long, short))
                return most, least, float(left[most]), lost
            degree = LARGEST_DEGREE

    def check(self, xp: Any, s: Array, *squares: Array) -> None:
        for square in squares:
            bad = ~xp.isfinite(square)
            if bool(xp.any(bad)):
                scale = float(s[int(xp.argmax(bad))])
                raise FloatingPointError(
                    f"{self.name}: E phi(s z)^2 is not finite at s = {scale:g} (s^2 the variance of a pre-activation): "
                    "phi or phi' overflows there; scale the inputs, or w_std, down"
                )

    def pairs(self, pairs: Pairs, row: QuadratureRow) -> None:
        xp, p, r, tau = pairs.xp, pairs.p, pairs.r, pairs.tau
        if row.short is not None and p.dtype.itemsize == 4:
            row = row.short
        top, ends = len(row.used_b) - 1, [] if row.steep is None else row.steep.ends(pairs)
        with pairs.borrow(5) as (c, square, *work):
            xp.subtract(1 if r is None else r, p, out=c)
            if r is None:
                c -= p
            step, power = (2, xp.multiply(c, c, out=square)) if row.odd else (1, c)
            if tau is not None:
                slope = work[0]
                slope[...] = term(pairs, row, row.b, top, work[1])
                slope *= c
                for n in range(top - 1, -1, -step):
                    if n < top - 1:
                        slope *= power
                    if row.used_b[n]:
                        slope += term(pairs, row, row.b, n, work[1])
                tau *= slope
            self.next_p(pairs, row, p, c, power, work)
            if r is not None and row.odd:
                c *= -1
                self.next_p(pairs, row, r, c, power, work)
            elif r is not None:
                xp.subtract(1, p, out=r)
        if row.steep is not None:
            row.steep.replace(pairs, ends, row.odd)
        pairs.clip()

    def next_p(self, pairs: Pairs, row: QuadratureRow, p: Array, c: Array, power: Array, work: list[Array]) -> None:
        """Set p <- p sum_k W_k c^k + |a - a'|^2 / 4; accumulate W_k in descending order of k.

        power : c, or c^2 if phi is odd.  An odd phi has W_2k = W_(2k-1); the sum is W_0 + (c^2 + c) sum W_2k c^(2k-2).
        """
        total, d, weights = work
        total[...] = weights[...] = 0
        weight: Any = 0.0 if row.one_variance else weights
        for n in range(len(row.used_a) - 1, 0, -2 if row.odd else -1):
            if row.used_a[n]:
                weight += term(pairs, row, row.a, n, d)
            total *= pairs.xp.add(power, c, out=d) if row.odd and n == 1 else power
            total += weight
        p *= total
        if row.distances is not None:
            p += pairs.quarter_squared_distance(row.distances, d)
        pairs.xp.maximum(p, 0, out=p)


def term(pairs: Pairs, row: QuadratureRow, a: Array, n: int, out: Array) -> Any:
    """Return a_n(s_i) a_n(s_j), as a single number if all q are equal."""
    return a[n] ** 2 if row.one_variance else pairs.outer(a[n], a[n], out)


def remainder(xp: Any, a: Array) -> Array:
    """Return sqrt(1 - sum a_n^2), the coefficient that represents all higher degrees."""
    return xp.sqrt(xp.maximum(1 - xp.sum(a * a, axis=1, keepdims=True), 0))
