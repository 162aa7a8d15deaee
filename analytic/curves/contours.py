"""Integrate around a spectrum on the real axis, with nodes that resolve all scales of the spectrum.

    f(t) = (1 / 2 pi i) int e^{st} F(s) ds                  F is singular only at real s <= 0
    z(u) = 0.5017 u cot(0.6407 u) - 0.6122 + 0.2645 i u     times J / t, -pi < u < pi, J nodes: error about 3.9^-J

(Trefethen, Weideman and Schmelzer 2006.)  For T steps of SGD (`analytic.curves.sgd`), the integrand is q(z)^T F with a
polynomial q.  The contour is a hyperbola through -0.4 / (lr T), closed by an arc to the right of the spectrum.
"""

from __future__ import annotations

import numpy as np

from minintk.arrays import Host

NODES = 24
SLOPE = np.pi / 3  # the hyperbola's rays are at 30 degrees to the spectrum


def laplace(t: float) -> tuple[Host, Host]:
    """Return nodes s with Im s > 0 and weights w, both (NODES/2,), such that f(t) = 2 Re sum w F(s) for real f."""
    u = np.pi * np.arange(1, NODES, 2) / NODES
    cot = 1 / np.tan(0.6407 * u)
    z = NODES * (0.5017 * u * cot - 0.6122 + 0.2645j * u)
    slope = 0.5017 * cot - 0.5017 * 0.6407 * u * (1 + cot**2) + 0.2645j
    return z / t, np.exp(z) * slope / (1j * t)


def closed(least: float, most: float, radius: float) -> tuple[Host, Host]:
    """Return the upper half, from left to right, of a contour around [0, most]: nodes z : (J,) and weights w : (J,).

    (1/2 pi i) int F dz is Im sum F(z) w if F(conj z) = conj F(z).  least : smallest z to resolve.  radius : of the arc.
    """
    end = np.arccosh(max(1.0, radius / least + np.sin(SLOPE)))  # |z| = least (cosh u - sin SLOPE)
    u, du = _panels(0.0, end, 1 + int(end))
    z = least * (np.sin(SLOPE) * np.cosh(u) - 1 + 1j * np.cos(SLOPE) * np.sinh(u))
    dz = least * (np.sin(SLOPE) * np.sinh(u) + 1j * np.cos(SLOPE) * np.cosh(u)) * du
    last = least * (np.sin(SLOPE) * np.cosh(end) - 1 + 1j * np.cos(SLOPE) * np.sinh(end))
    angle, turn = _panels(start := float(np.angle(last)), 0.0, 3 + int(start / 2 / (1 - most / abs(last))))
    arc = abs(last) * np.exp(1j * angle)
    return np.concatenate([z, arc]), np.concatenate([dz, 1j * arc * turn]) / -np.pi  # left to right is clockwise


def _panels(low: float, high: float, count: int) -> tuple[Host, Host]:
    """Return Gauss-Legendre nodes and weights, 16 on each of `count` equal panels."""
    x, w = np.polynomial.legendre.leggauss(16)
    half = (high - low) / (2 * count)
    middle = low + half * (2 * np.arange(count) + 1)
    return (middle[:, None] + half * x).ravel(), np.tile(half * w, count)
