"""Truth for the infinite-width kernels, written apart from the library: mpmath recursions and plain 2-d quadrature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

import minintk as mn

DIGITS = 80

Array = Any


def dual(layer: mn.spec.Layer, q1: Any, q2: Any, k: Any) -> tuple[Any, Any]:
    """E phi(u) phi(v) and E phi'(u) phi'(v) for (u, v) ~ N(0, [[q1, k], [k, q2]]), as the papers print them."""
    if isinstance(layer, mn.ReLU | mn.LeakyReLU | mn.Abs):
        if q1 == 0 or q2 == 0:
            return mp.mpf(0), mp.mpf(0)
        down = {mn.ReLU: mp.mpf(0), mn.Abs: mp.mpf(-1)}.get(type(layer), mp.mpf(getattr(layer, "slope", 0)))
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
            return (k / 4) + (k * mp.asin(k / mp.sqrt(prod)) + (k * k + q1 * q2 * delta**2) / (prod * delta)) / (2 * mp.pi)

        return gelu(k), mp.diff(gelu, k, h=mp.mpf(10) ** -30)
    if isinstance(layer, mn.Sin):
        return mp.exp(-(q1 + q2) / 2) * mp.sinh(k), mp.exp(-(q1 + q2) / 2) * mp.cosh(k)
    raise NotImplementedError(layer)


def pair_kernels(spec: mn.Sequential, x1: Array, x2: Array) -> tuple[Any, Any, Any, Any]:
    """(K, Theta) of one pair of rows over (sqrt(k k'), sqrt(th th')), and these scales, for a chain of Dense and activations.

    NTK parametrization, any b_init; the inputs are taken as they are, digit for digit.
    """
    with mp.workdps(DIGITS):
        a, b = ([mp.mpf(float(v)) for v in x] for x in (x1, x2))
        d = len(a)
        k = [mp.fdot(a, a) / d, mp.fdot(b, b) / d, mp.fdot(a, b) / d]
        t = [mp.mpf(0)] * 3
        for layer in spec:
            if isinstance(layer, mn.Dense):
                w2, b2 = mp.mpf(layer.w_std) ** 2, mp.mpf(layer.b_std) ** 2
                drawn = b2 if layer.b_init == "normal" else mp.mpf(0)
                t = [w2 * th + w2 * kk + b2 for th, kk in zip(t, k)]
                k = [w2 * kk + drawn for kk in k]
            else:
                both = [dual(layer, k[0], k[0], k[0]), dual(layer, k[1], k[1], k[1]), dual(layer, k[0], k[1], k[2])]
                k, t = [one for one, _ in both], [th * slope for th, (_, slope) in zip(t, both)]
        return k[2], t[2], mp.sqrt(k[0] * k[1]), mp.sqrt(t[0] * t[1])


def kernel_errors(kernel: Callable[[Array], tuple[Array, Array]], spec: mn.Sequential, x: Array) -> tuple[float, float]:
    """Largest error of NNGP and of NTK over all pairs of rows, relative to sqrt(k(x, x) k(x', x'))."""
    worst = [0.0, 0.0]
    nngp, ntk = kernel(x)
    for i in range(len(x)):
        for j in range(i, len(x)):
            *truth, scale_k, scale_t = pair_kernels(spec, x[i], x[j])
            for which, (got, want, scale) in enumerate(zip((nngp, ntk), truth, (scale_k, scale_t))):
                error = abs(mp.mpf(float(got[i, j])) - want)
                error = float(error / scale) if scale > 0 else (0.0 if error == 0 else np.inf)
                worst[which] = max(worst[which], error if np.isfinite(error) else np.inf)
    return worst[0], worst[1]


def degenerate_rows(rng: np.random.Generator, d: int = 6, dtype: Any = np.float64) -> Array:
    """Rows whose pairs are equal, opposite, at angles 1e-3 ... 1e-15, collinear with norms 1e-6 ... 1e6, zero; and two others."""
    x = rng.normal(size=d)
    x *= np.sqrt(d) / np.linalg.norm(x)
    side = rng.normal(size=d)
    side -= x * (side @ x) / (x @ x)
    side *= np.sqrt(d) / np.linalg.norm(side)
    angles = [np.cos(a) * x + np.sin(a) * side for a in (1e-3, 1e-5, 1e-7, 1e-8, 1e-10, 1e-13, 1e-15)]
    others = [np.cos(a) * x + np.sin(a) * side for a in (0.03, 0.2, 1.0, 2.5, 3.1)]
    rows = [x, x.copy(), -x, *angles, -angles[2], -angles[4], 1e-6 * x, 1e6 * x, -3e5 * angles[1], 0 * x, 1.7 * x, *others]
    return np.array(rows).astype(dtype)


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
