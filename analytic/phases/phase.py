"""Find the phase of a deep network: fixed points of a block's maps, their slopes, and depth scales.

    q*   = Q(q*)              the variance of deep pre-activations           chi_q = Q'(q*)     xi_q = -1 / log |chi_q|
    c*   = c'(q*, c*)         the correlation of two deep inputs             chi, slope at c*   xi = -1 / log chi
    chi_1                     the slope at c = 1, by which a block multiplies |gradient|^2

chi_1 < 1 is the ordered phase: inputs merge and gradients vanish.  chi_1 > 1 is the chaotic phase: nearby inputs
separate and gradients explode.  At chi_1 = 1, the critical point, xi is infinite (without Dropout).  After l blocks,
|c - c*| has decayed as e^(-l / xi).  Networks can be trained to depths of about 6 xi (Poole et al. 2016, eqs. (3) to
(7); Schoenholz et al. 2017, eqs. (4) to (9)).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, inf, isinf, log, nan
from typing import Literal

import numpy as np

from analytic.kernels import DEFAULT_PARAMETRIZATION, every
from analytic.phases.block import repeated, steps
from analytic.phases.maps import Maps
from minintk import spec as s
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import UnsupportedLayer
from minintk.validate import number, whole

LOW, HIGH = 1e-16, 1e12
"""Variances below LOW are assumed to converge to 0, and variances above HIGH are assumed to be unbounded."""
SAME, AT_THE_EDGE = 1e-13, 1e-9
"""Relative change of variance that is treated as 0, and distance of chi_1 from 1 that is treated as critical."""


@dataclass(frozen=True)
class Phase:
    """Phase of a network of many repeated blocks.  Slopes and contributions are per block, and depth scales in blocks.

    name : "ordered", "critical" or "chaotic", given chi_1; "unbounded" if variances grow without bound.
    q : q*, the variance of pre-activations at the block's end; it can be 0 or inf.
    c : c*, the correlation of two different inputs after many blocks; nan if blocks preserve all angles or overflow.
    chi_1, chi : dK'(x, x') / dK(x, x') at x' = x and at c*.   chi_q : dQ / dq at q*, or Q / q if q* is 0 or inf.
    xi, xi_q : depth scales of c and of q; inf for a quantity that does not converge exponentially.
    added, added_c : contributions of the block's own parameters to Theta(x, x), and to Theta(x, x') at c*.
    block : the layers that repeat.

    With Dropout, c is the correlation of examples with separate masks.  Then c* < 1 and xi is finite even at chi_1 = 1.
    """

    name: Literal["ordered", "critical", "chaotic", "unbounded"]
    q: float
    c: float
    chi_1: float
    chi: float
    chi_q: float
    xi: float
    xi_q: float
    added: float
    added_c: float
    block: s.Sequential

    @property
    def growth(self) -> str:
        """Return how Theta(x, x) grows with depth: "exponential", "linear", "bounded" or "subexponential" (q = inf)."""
        if self.chi_1 > 1 + AT_THE_EDGE:
            return "exponential"
        if self.name == "unbounded":
            return "subexponential"
        return "linear" if self.name == "critical" and self.q > 0 else "bounded"

    def ntk(self, depth: int) -> tuple[float, float]:
        """Return Theta(x, x) and Theta(x, x') of `depth` blocks, for inputs at q* and c*.

            Theta = A (chi^l - 1) / (chi - 1),  l = depth,  (A, chi) = (added, chi_1) for x' = x, else (added_c, chi)

        Raises ValueError unless 0 < q* < inf and chi^l < e^600.

        >>> import minintk as mn
        >>> phase(mn.Sequential(mn.Dense(512, w_std=2**0.5), mn.ReLU())).ntk(10)
        (10.0, 10.0)
        """
        depth = whole("depth", depth)
        if not (0 < self.q < inf and depth * log(max(1, self.chi_1, self.chi)) < 600):
            raise ValueError(f"ntk expects 0 < q* < inf and chi^depth < e^600, got q* = {self.q:g}, depth = {depth}")
        series = (depth if abs(chi - 1) < SAME else (chi**depth - 1) / (chi - 1) for chi in (self.chi_1, self.chi))
        return self.added * next(series), self.added_c * next(series)

    def __str__(self) -> str:
        """Summarise the phase, q*, c*, chi_1 and xi in one line."""
        return f"{self.name}: q* = {self.q:.4g}, c* = {self.c:.4g}, chi_1 = {self.chi_1:.4g}, xi = {self.xi:.4g}"


def phase(spec: s.Layer, parametrization: Parametrization = DEFAULT_PARAMETRIZATION, *, start: float = 1.0) -> Phase:
    """Return the phase of a network that repeats a block of layers: fixed points, slopes and depth scales.

    spec : a network with a repeated block (`Phase.block`), or only the block.  Under `mn.NTK`, widths have no effect.
    start : the initial variance, which selects one of several fixed points.  Supports all activations with a tangent
    kernel, biases, `Residual`, `Sum`, `Product`, `LayerNorm` and `Dropout`.  For convolutions with circular padding,
    average pooling and attention (softmax, scaling="linear"), all pixels or positions of an input are assumed to be
    equal.  Raises UnsupportedLayer, with the reason, if the recursion does not close on q and c, and ValueError for
    start <= 0.  docs/phases.md contains the derivation.  Sources: Poole et al. 2016; Schoenholz et al. 2017 (depth
    scales, Dropout); Yang and Schoenholz 2017 (Residual); Xiao et al. 2018 (convolutions), 2020 (the NTK).

    >>> import minintk as mn
    >>> print(phase(mn.Sequential(mn.Dense(512, w_std=1.5, b_std=0.3), mn.Tanh())))
    chaotic: q* = 0.9608, c* = 0.7668, chi_1 = 1.061, xi = 19.92
    >>> phase(mn.Sequential(mn.Dense(512, w_std=2**0.5), mn.ReLU(), mn.Dense(512, w_std=2**0.5), mn.ReLU())).name
    'critical'
    """
    spec = s.as_sequential(spec)
    if not isinstance(parametrization, Parametrization):
        raise TypeError(f"parametrization expects an object such as mn.NTK(), got {parametrization!r}")
    start = number("start", start)
    block = repeated(spec)
    maps = Maps(steps(block, spec, parametrization))
    q = fixed_variance(maps, start)
    at = min(max(q, LOW), HIGH)
    after, chi_1, added = maps.variance(at)
    if isinf(after):
        return Phase("unbounded", inf, nan, inf, nan, inf, inf, inf, nan, nan, block)
    p, settles = fixed_angle(maps, at), 0 < q < inf
    _, chis, adds = maps.pairs(at, np.array([0.0 if np.isnan(p) else p]))
    chi, gain = float(chis[0]), 1.0 if settles else after / at
    chi_q = maps.chi_q(at) if settles else gain
    name: Literal["ordered", "critical", "chaotic", "unbounded"] = "ordered" if chi_1 < 1 else "chaotic"
    if q == inf or abs(chi_1 - 1) <= AT_THE_EDGE:
        name = "unbounded" if q == inf else "critical"
    xi, xi_q = scale(chi / gain), scale(chi_q)
    return Phase(name, q, 1 - 2 * p, chi_1, chi, chi_q, xi, xi_q, added, float(adds[0]), block)


def in_one_line(spec: s.Layer, parametrization: Parametrization) -> tuple[str, ...]:
    """Return (line,) for `Network.summary`, with the phase or the reason for its absence; () without activations."""
    if not any(isinstance(layer, s.Activation) for layer in every(spec)):
        return ()
    try:
        return (f"phase: {phase(spec, parametrization)}",)
    except (UnsupportedLayer, ValueError, ArithmeticError) as error:
        return (f"phase: none, as {str(error).partition(':')[0]}",)


def scale(slope: float) -> float:
    """Return xi = -1 / log |slope|: 0 for a slope of 0, and inf for |slope| of 1 or more (to within AT_THE_EDGE)."""
    size = abs(slope)
    return 0.0 if size == 0 else inf if size > 1 - AT_THE_EDGE else -1 / log(size)


def fixed_variance(maps: Maps, start: float) -> float:
    """Return the first fixed point of Q in the direction in which the variance moves from `start`; 0 or inf if none."""
    from scipy.optimize import brentq, minimize_scalar

    if abs(rise := maps.log_gain(start)) <= SAME:
        return start
    step, end = (log(2) / 2, HIGH) if rise > 0 else (-log(2) / 2, LOW)

    def ahead(k: float) -> float:  # positive before the fixed point
        return maps.log_gain(start * exp(step * k)) * (1 if rise > 0 else -1)

    before, here = ahead(-1), abs(rise)
    for k in range(max(0, ceil((log(end) - log(start)) / step))):
        low, high, after = k, k + 1, ahead(k + 1)
        if before - SAME > here <= after < inf:  # a minimum near k, perhaps between two fixed points
            low, high = max(0, k - 1), minimize_scalar(ahead, bounds=(max(0, k - 1), k + 1), method="bounded").x
        if (rest := ahead(high)) <= SAME:
            return start * exp(step * (high if rest >= -SAME else brentq(ahead, low, high, xtol=1e-15, rtol=1e-15)))
        before, here = here, after
    return inf if rise > 0 else 0.0


def fixed_angle(maps: Maps, q: float) -> float:
    """Return p* = (1 - c*) / 2, to which pairs with 0 <= c < 1 converge; nan if all angles are preserved.

    c' is a sum of terms b_n c^n with b_n >= 0, so c' grows with c and is convex on [0, 1].  Hence c' = c has one
    root c* < 1 if c' < c just below 1: for a slope above 1, or if dropout separates equal inputs.  Else c* = 1.
    """
    from scipy.optimize import brentq

    def rise(log_p: float) -> float:
        p = exp(log_p)
        after = float(maps.pairs(q, np.array([p]))[0][0])
        return log(after / p) if after > 0 else -inf

    probes = np.array([0.1, 0.25, 0.4])
    if np.all(np.abs(maps.pairs(q, probes)[0] / probes - 1) < AT_THE_EDGE):
        return nan
    low, high = log(1e-14), log(0.5)
    if rise(low) <= AT_THE_EDGE:
        return 0.0
    if rise(high) >= 0:
        return 0.5
    return exp(brentq(rise, low, high, xtol=1e-14, rtol=1e-14))
