"""Compute closed forms for Hardtanh, ReLU6 and Hardsigmoid, which are linear between kinks t_k and constant outside.

phi' jumps by J_k at t_k.  For the angle a <= pi/2, T = tan(a/2), and two kinks h = t_k / s, l = t_l / s', U = s s',

    E phi' phi'       = sum_kl J_k J_l [W(h, (l - h cos a) / sin a) + W(l, (h - l cos a) / sin a)] / (2 pi)
    (E(1) - E(c)) / U = 2p E phi' phi' + sum_kl J_k J_l / (2 pi) int_0^a (1 - cos b) e(b) db

    W(h, A) = h int_0^A (1 - e^(-y)) / 2y dx,  y = (h^2 + x^2) / 2          (arctan(A/h) minus 2 pi Owen's T(h, A/h))
    e(b)    = exp(-(h^2 + l^2 - 2 h l cos b) / 2 sin(b)^2)                   (u = t_k and u' = t_l; Price's theorem)

Unequal norms add E (phi(s z) / sqrt v - phi(s' z) / sqrt v')^2 / 4 to p'.  For a > pi/2, use u and -u', with phi(-x)
for -u'.  Since sum J_k = 0, subtracting W and e at l = 0 or h = 0 avoids cancellation for large s or s'.
"""

from __future__ import annotations

from itertools import pairwise, product
from math import pi, sqrt
from typing import Any

import numpy as np

from analytic.recursion.scalar_forms import Form, Numbers, nothing
from minintk.arrays import Array
from minintk.layers.activation import Pointwise

FAR, END = 40.0, 9.0
"""The Gaussian density is 0 beyond FAR standard deviations, and is below rounding beyond END."""


def rule(nodes: int, power: int = 1) -> list[tuple[float, float]]:
    """Return Gauss-Legendre nodes and weights on (0, 1).  A larger `power` moves nodes towards 0, i.e. small angles."""
    x, w = (np.polynomial.legendre.leggauss(nodes) + np.array([[1.0], [0.0]])) / 2
    return list(zip((x**power).tolist(), (w * power * x ** (power - 1)).tolist(), strict=True))


SMOOTH, GRADED = rule(44), rule(128, 8)


def owen(xp: Any, h: Array, start: Array, end: Array, step: Array) -> Array:
    """Return W(h, end) - W(h, start), given step = end - start.  Beyond END, W is a constant plus an arctangent."""
    X, Y, total = xp.clip(start, -END, END), xp.clip(end, -END, END), 0.0
    width = xp.where((start == X) & (end == Y), step, Y - X)
    for x, w in SMOOTH:
        y = xp.maximum(h * h + (X + width * x) ** 2, 1e-30)
        total = total - w * xp.expm1(-y / 2) / y
    tails = xp.arctan2(h * (end - Y), h * h + end * Y) - xp.arctan2(h * (start - X), h * h + start * X)
    return h * width * total + xp.where(width == 0, xp.arctan2(h * step, h * h + end * start), tails)


def lag(xp: Any, y: Array, parts: tuple[Array, Array], square: Array, far: Array, near: Array) -> Array:
    """Return int_0^1 x^2 (e - e_0) / (1 + x^2 T^2)^2 dx with tan(b/2) = x T; e_0 is e with the longer row's kink at 0.

    y, parts : e = exp(-y - parts[0] / x^2 - parts[1] x^2).   square : T^2.   far, near : kink / 2T (near: longer row).
    """
    total = 0 * square
    for x, w in GRADED:
        u = x * x * square
        d = near * ((1 - u * u) * far - (1 + u) ** 2 / 2 * near) / (x * x)  # log(e / e_0)
        least = xp.where(d > 0, y + parts[0] / (x * x) + parts[1] * (x * x), ((1 + u) * far / x) ** 2 / 2)
        total = total - xp.sign(d) * xp.exp(-least) * xp.expm1(-xp.abs(d)) * (w * x * x) / (1 + u) ** 2
    return total


def clipped(point: Pointwise) -> Form:
    """Return the form of phi for vectors.  Zero rows count as lying to the left of a kink at 0, as in ReLU."""
    kinks = np.sort(np.asarray(point.kinks, dtype=np.float64))
    J = np.diff(point.derivative(np, (kinks[1:] + kinks[:-1]) / 2), prepend=0.0, append=0.0).tolist()

    def rows(xp: Any, q: Array, k: Numbers) -> tuple[Array, ...]:
        """Return h = t / s for each kink t, and s."""
        s = xp.sqrt(q)
        return *(xp.clip((t + (q == 0) * 1e-99) / xp.maximum(s, 1e-160), -FAR, FAR) for t in kinks.tolist()), s

    def norms(xp: Any, sign: float, one: Numbers, two: Numbers) -> Any:
        """Return E e(z)^2 / 4; e(z) = phi(s z) / sqrt v - phi(sign s' z) / sqrt v' is linear between all kinks."""
        (*h, s, gain), (*h2, s2, gain2) = one, two
        root, root2 = (g / xp.where(v > 0, v, 1.0) for g, v in ((gain, s), (gain2, s2)))
        ends = *h, *(sign * v for v in h2), -END, 0.0, END
        z = xp.sort(xp.stack([xp.clip(v + 0 * (s + s2), -END, END) for v in ends]), axis=0)
        e, total = point.phi(xp, s * z) * root - point.phi(xp, sign * s2 * z) * root2, 0.0
        for (low, high), (first, last) in zip(pairwise(z), pairwise(e), strict=True):
            for x, w in SMOOTH:
                value, at = first + (last - first) * x, low + (high - low) * x
                total = total + (high - low) * w * value * value * xp.exp(-at * at / 2)
        return total / (4 * sqrt(2 * pi))

    def turn(m: Any, p: Any, r: Any, one: Numbers, two: Numbers, k: Numbers) -> tuple[Any, Any]:
        """Return p', including the part due to different norms, and E phi'(u) phi'(u')."""
        xp, (*h, s, gain), (*h2, s2, gain2) = m.xp, one, two
        p, r = (xp.astype(a, xp.float64) for a in (p, r))  # nodes close to 0 would underflow in float32
        wide, P = p > r, xp.minimum(p, r)
        sign, T = xp.copysign(1 + 0 * p, r - p), xp.sqrt(xp.maximum(P, m.tiny) / xp.maximum(p, r))
        square, slope, late, most = T * T, 0 * T, 0 * T, m.tiny**-0.4
        cot, csc = (1 - square) / (2 * T), (1 + square) / (2 * T)
        for (jump, v), (jump2, v2) in product(zip(J, h, strict=True), zip(J, h2, strict=True)):
            v2, both = sign * v2, jump * jump2 / (2 * pi)
            low, high = xp.clip((v - v2) / 2 / T, -most, most), (v + v2) / 2 * T
            for one_kink, other, end in ((v, v2, high - low), (v2, v, high + low)):
                start, step = (xp.clip(a, -most, most) for a in (-one_kink * cot, other * csc))
                slope = slope + both * owen(xp, one_kink, start, end, step)
            if bool(xp.any(P)):
                parts = xp.clip(low, -FAR, FAR) ** 2 / 2, high * high / 2
                far, near = (xp.clip(xp.where((s < s2) == one_first, v, v2) / T, -1e6, 1e6) / 2 for one_first in (1, 0))
                late = late + both * lag(xp, (v * v + v2 * v2) / 4, parts, square, far, near)
        angle = (P * slope + 2 * T * square * late) * gain * gain2
        part = 0 * T if one is two else norms(xp, 1.0, one, two)
        if bool(xp.any(wide)):
            part = xp.where(wide, norms(xp, -1.0, one, two), part)
        return part + angle, sign * slope

    return Form("clipped", nothing, nothing, (), rows, turn)
