"""Truth for the infinite-width kernels, written apart from the library: mpmath recursions and plain 2-d quadrature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

import minintk as mn

DIGITS = 70

Array = Any


def dual(layer: mn.spec.Layer, q1: Any, q2: Any, k: Any) -> tuple[Any, Any]:
    """E phi(u) phi(v) and E phi'(u) phi'(v) for (u, v) ~ N(0, [[q1, k], [k, q2]]), as the papers print them."""
    if isinstance(layer, mn.ReLU | mn.LeakyReLU | mn.Abs):
        down = {mn.ReLU: mp.mpf(0), mn.Abs: mp.mpf(-1)}.get(type(layer), mp.mpf(getattr(layer, "slope", 0)))
        if q1 == 0 or q2 == 0:  # phi'(0): slope of LeakyReLU, 0 of the others
            at_zero = down if isinstance(layer, mn.LeakyReLU) else mp.mpf(0)
            return mp.mpf(0), at_zero * (at_zero if q1 == q2 else (1 + down) / 2)
        norm = mp.sqrt(q1 * q2)
        c = max(mp.mpf(-1), min(mp.mpf(1), k / norm))
        # phi(x) = relu(x) - down relu(-x); Cho and Saul's J_1, J_0 at the angle and at its supplement
        a = mp.acos(c)

        def j(a: Any) -> tuple[Any, Any]:
            return norm * (mp.sin(a) + (mp.pi - a) * mp.cos(a)) / (2 * mp.pi), (mp.pi - a) / (2 * mp.pi)

        (same, dsame), (cross, dcross) = j(a), j(mp.pi - a)
        return (1 + down**2) * same - 2 * down * cross, (1 + down**2) * dsame + 2 * down * dcross
    if isinstance(layer, mn.Erf):
        prod = (1 + 2 * q1) * (1 + 2 * q2)
        return 2 / mp.pi * mp.asin(2 * k / mp.sqrt(prod)), 4 / mp.pi / mp.sqrt(prod - 4 * k * k)
    if isinstance(layer, mn.GELU):
        prod = (1 + q1) * (1 + q2)

        def gelu(k: Any) -> Any:
            delta = mp.sqrt(prod - k * k)
            rest = (k * k + q1 * q2 * delta**2) / (prod * delta)
            return k / 4 + (k * mp.asin(k / mp.sqrt(prod)) + rest) / (2 * mp.pi)

        return gelu(k), mp.diff(gelu, k, h=mp.mpf(10) ** -30)
    if isinstance(layer, mn.Sin):
        return mp.exp(-(q1 + q2) / 2) * mp.sinh(k), mp.exp(-(q1 + q2) / 2) * mp.cosh(k)
    raise TypeError(f"there is no exact dual of {layer!r} here: add its formula")


def exact_kernels(spec: mn.Sequential, x: Array) -> tuple[list[list[Any]], list[list[Any]]]:
    """NNGP and NTK of all pairs j >= i of the rows x : (N, d), row i from its diagonal on, in DIGITS digits.

    For a chain of Dense and activations, NTK parametrization, any b_init; x is taken as it is, digit for digit.
    """
    with mp.workdps(DIGITS):
        rows = [[mp.mpf(float(v)) for v in row] for row in x]
        k = [[mp.fdot(a, b) / len(a) for b in rows[i:]] for i, a in enumerate(rows)]
        t = [[mp.mpf(0) for _ in row] for row in k]
        for layer in spec:
            if isinstance(layer, mn.Dense):
                w2, b2 = mp.mpf(layer.w_std) ** 2, mp.mpf(layer.b_std) ** 2
                drawn = b2 if layer.b_init == "normal" else mp.mpf(0)
                t = [[w2 * th + w2 * kk + b2 for th, kk in zip(*both)] for both in zip(t, k)]
                k = [[w2 * kk + drawn for kk in row] for row in k]
            else:
                q = [row[0] for row in k]
                both = [[dual(layer, q[i], q[i + j], kk) for j, kk in enumerate(row)] for i, row in enumerate(k)]
                k = [[value for value, _ in row] for row in both]
                t = [[th * slope for th, (_, slope) in zip(*pair)] for pair in zip(t, both)]
        return k, t


def largest_errors(got: tuple[Array, Array], truth: tuple[list[list[Any]], list[list[Any]]]) -> tuple[float, float]:
    """Largest error of NNGP and of NTK over all pairs of rows, relative to sqrt(k(x, x) k(x', x')); inf for a NaN."""
    worst = []
    with mp.workdps(DIGITS):
        for values, exact in zip(got, truth):
            errors = [0.0]
            for i, row in enumerate(exact):
                for j, want in enumerate(row, start=i):
                    for value in (float(values[i, j]), float(values[j, i])):
                        scale = mp.sqrt(exact[i][0] * exact[j][0])
                        error = abs(mp.mpf(value) - want)
                        errors.append(float(error / scale) if scale > 0 else (0.0 if value == 0 else np.inf))
            worst.append(np.inf if np.isnan(errors).any() else max(errors))
    return worst[0], worst[1]


def degenerate_rows(rng: np.random.Generator, d: int = 6, dtype: Any = np.float64) -> Array:
    """Rows: equal, opposite, at angles 1e-3 ... 1e-15, collinear with norms 1e-6 ... 1e6, zero, and others."""
    x = rng.normal(size=d)
    x *= np.sqrt(d) / np.linalg.norm(x)
    side = rng.normal(size=d)
    side -= x * (side @ x) / (x @ x)
    side *= np.sqrt(d) / np.linalg.norm(side)
    angles = [np.cos(a) * x + np.sin(a) * side for a in (1e-3, 1e-5, 1e-7, 1e-8, 1e-10, 1e-13, 1e-15)]
    others = [np.cos(a) * x + np.sin(a) * side for a in (0.03, 0.2, 1.0, 2.5, 3.1)]
    opposite = [-x, -angles[2], -angles[4]]
    scaled = [1e-6 * x, 1e6 * x, -3e5 * angles[1], 0 * x, 1.7 * x]
    return np.array([x, x.copy(), *angles, *opposite, *scaled, *others]).astype(dtype)


def gaussian_nodes(n_panels: int = 48, nodes: int = 12) -> tuple[Array, Array]:
    """Nodes and weights of E f(z), z ~ N(0, 1): panels of equal width on [-12, 12]."""
    t, w = np.polynomial.legendre.leggauss(nodes)
    ends = np.linspace(-12, 12, n_panels + 1)
    half = (ends[1] - ends[0]) / 2
    z = ((ends[1:] + ends[:-1])[:, None] / 2 + half * t).ravel()
    return z, np.tile(half * w, n_panels) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)


def quadrature_dual(phi: Callable[[Array], Array], q1: float, q2: float, c: float) -> float:
    """E phi(u) phi(v), var u = q1, var v = q2, correlation c, over the plane; phi smooth."""
    z, w = gaussian_nodes()
    u = np.sqrt(q1) * z
    v = np.sqrt(q2) * (c * z[:, None] + np.sqrt((1 - c) * (1 + c)) * z)
    return float((w * phi(u)) @ (phi(v) @ w))
