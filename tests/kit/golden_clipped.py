"""Recompute recorded duals of activations that are constant beyond their kinks, by integrals in high precision."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np

import minintk as mn
from minintk.layers.activation import pointwise
from minintk.more_layers import activations as more
from tests.kit.oracles_kernels import DIGITS

CLIPPED: list[tuple[mn.spec.Activation, float, float, float, float, float]] = [
    (more.Hardtanh(), 1.0, 1.0, 0.3, 0.316874604706689897, 0.48584964375225719),
    (more.Hardtanh(), 16.0, 16.0, 1e-12, 3.63958591317989065e-12, 0.197412034332806345),
    (more.Hardtanh(), 1e4, 1e4, 1e-5, 0.000667229188279677007, 0.00596671597051352936),
    (more.Hardtanh(), 0.25, 0.25, 0.8, 0.797855847663811244, 0.920000052885163711),
    (more.Hardtanh(), 2.0, 3.0, 0.1, 0.134044231967187238, 0.313733029271980833),
    (more.Hardtanh(), 1.0, 1e12, 0.2, 0.261654572317349055, 6.29291914280524436e-7),
    (more.Hardtanh(), 1e-3, 9.0, 0.999999, 0.93131452540181738, 0.261117319636472723),
    (more.ReLU6(), 4.0, 4.0, 0.4, 0.28723144181900823, 0.280038281423324187),
    (more.ReLU6(), 50.0, 50.0, 1e-8, 1.44884878970015793e-8, 0.301874006708086687),
    (more.ReLU6(), 9.0, 9.5, 0.95, 0.494790156437069285, 0.071782903546272826),
    (more.ReLU6(), 400.0, 1.0, 0.05, 0.101440599125301565, 0.0729736380612220889),
    (more.Hardsigmoid(), 16.0, 16.0, 0.02, 0.0109896364733635023, 0.0132968555107030987),
    (more.Hardsigmoid(), 16.0, 16.0, 0.9999999, 0.383558151066462832, 0.0151831481476517237),
    (more.Hardsigmoid(), 1e6, 1e3, 0.6, 0.279109426918487373, 5.12868086253296539e-6),
    (more.Hardtanh(-0.5, 2.0), 1.0, 1.0001, 1e-9, 1.34185622897238263e-9, 0.668692878461094433),
    (more.Hardtanh(-0.5, 2.0), 30.0, 0.1, 0.7, 0.641791658667125299, 0.170266422725024197),
    (more.Hardtanh(0.5, 2.0), 1.0, 1.0, 0.25, 0.0727900915350203748, 0.131807821715046187),
]
"""Rows (phi, q, q', p, p', E phi'(u) phi'(u')). The last two are from `clipped_dual`. p = (1 - correlation) / 2."""


def clipped_dual(phi: mn.spec.Activation, q: float, q2: float, p: float) -> tuple[Any, Any]:
    """Return p' and E phi'(u) phi'(u') by integrals over u. E[phi(u') | u] has a closed form."""
    kinks = [mp.mpf(t) for t in pointwise(phi).kinks]
    low, high = (pointwise(phi).phi(np, np.array(t)).item() for t in pointwise(phi).kinks)
    slope = (mp.mpf(high) - mp.mpf(low)) / (kinks[1] - kinks[0])
    s, s2, c, sin = mp.sqrt(q), mp.sqrt(q2), 1 - 2 * mp.mpf(p), 2 * mp.sqrt(mp.mpf(p) * (1 - mp.mpf(p)))

    def f(x: Any) -> Any:
        return low + slope * (min(max(x, kinks[0]), kinks[1]) - kinks[0])

    def given(z: Any) -> tuple[Any, Any]:
        d = [(s2 * c * z - t) / (s2 * sin) for t in kinks]
        ramps = [s2 * sin * (mp.npdf(v) + v * mp.ncdf(v)) for v in d]
        return low + slope * (ramps[0] - ramps[1]), slope * (mp.ncdf(d[0]) - mp.ncdf(d[1]))

    def mean(g: Any, centres: list[Any], width: Any = 0) -> Any:
        ends = {mp.mpf(k) for k in range(-13, 14)} | {t + k * width for t in centres for k in (-9, -5, -2, -1, 0)}
        ends |= {t + k * width for t in centres for k in (1, 2, 5, 9)}
        return mp.quad(lambda z: g(z) * mp.npdf(z), sorted(e for e in ends if abs(e) <= 13))

    both = [*(t / s for t in kinks), *(t / (s2 * c) for t in kinks)]
    K = mean(lambda z: f(s * z) * given(z)[0], both, sin / c)
    slopes = mean(lambda z: (slope if kinks[0] < s * z < kinks[1] else 0) * given(z)[1], both, sin / c)
    v, v2 = (mean(lambda z, r=r: f(r * z) ** 2, [t / r for t in kinks]) for r in (s, s2))
    return (1 - K / mp.sqrt(v * v2)) / 2, slopes


def apart() -> float:
    """Return the largest |log(recorded value / recomputed value)| over the cases in CLIPPED."""
    with mp.workdps(DIGITS):
        pairs = ((v, again) for case in CLIPPED for v, again in zip(case[4:], clipped_dual(*case[:4]), strict=True))
        return float(max(abs(mp.log(mp.mpf(v) / again)) for v, again in pairs))
