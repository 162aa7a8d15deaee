"""The C of the steps, compiled by this machine's compiler, against mpmath; specs and images for kernels as a whole."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest
from compiled import COMPILER, Kernel

import minintk as mn
from analytic.images.activations import TINY_ROOT, numbers_of_pixels
from analytic.images.gpu_kernels import ARCSINE, KINKED, OPPOSITE_ROUNDINGS, PIXEL, StepSource
from minintk.arrays import block_memory, raw_kernel

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler on this machine")

EPS = {"float32": 2.0**-23, "float64": 2.0**-52}
DTYPES = ["float32", "float64"]


def test_numpy_compiles_nothing() -> None:
    assert raw_kernel(np, "nothing", "") is None
    assert block_memory(np) == 0


# ----------------------------------------------------------------------------------- entry by entry, against mpmath


def entries(dtype: str, least: float) -> tuple[Array, Array, Array]:
    """D, root and root2 of pairs: random, equal, opposite, nearly so, of very different size, black."""
    rng = np.random.default_rng(0)
    sizes = [least, 1e-4, 1.0, 1.0 + 1e-5, 30.0]
    root, root2 = (v.reshape(-1) for v in np.meshgrid(sizes, sizes))
    root, root2 = (np.concatenate([v, np.exp(rng.normal(size=25))]) for v in (root, root2))
    angles = np.array([0.0, 1e-9, 1e-4, 0.3, 1.5, 3.0, np.pi - 1e-5, np.pi])[:, None]
    D = (root - root2) ** 2 / 2 + 2 * root * root2 * np.sin(angles / 2) ** 2
    flat = [np.broadcast_to(v, D.shape).reshape(-1).astype(dtype) for v in (D, root, root2)]
    return flat[0], flat[1], flat[2]


KINKED_INPUTS = "T D, T half, T half2, T c, T b2, T scale"
ARCSINE_INPUTS = ", ".join(["T D", *(f"T {name}, T {name}2" for name in PIXEL), "T unit"])


def run(step: StepSource, names: str, *inputs: Any, tangent: tuple[Any, ...]) -> tuple[Array, Array]:
    """d and theta, of D, numbers of the pixels and then Theta, ratio and 2 rest."""
    d, theta = np.empty_like(inputs[0]), np.empty_like(inputs[0])
    body = f"{step.body} {step.tangent} theta = {step.theta}; d = {step.d};"
    Kernel("step", f"{names}, T Theta, T ratio, T rest2", "T d, T theta", body)(*inputs, *tangent, d, theta)
    return d, theta


def parted(D: Array, root: Array, root2: Array) -> Array:
    """A = U (1 - c), in the precision at hand: what D says of the angle, its digits lost where sizes differ."""
    g = root - root2
    return np.clip(D - g * g / 2, 0, 2 * (root * root2))


def worst(got: Array, want: list[Any], scale: list[Any], dtype: str) -> float:
    """The largest error of all entries, in units of eps times the scale."""
    pairs = zip(got.tolist(), want, scale, strict=True)
    return max(float(abs(mp.mpf(g) - w) / s) / EPS[dtype] if s else float(g != 0) for g, w, s in pairs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_erf_is_right_to_rounding(dtype: str) -> None:
    """D relative to (v + v') / 2, Theta to its largest, sqrt(Theta Theta'); from A as it is."""
    D, root, root2 = entries(dtype, 0.0)
    pixels = zip(*(numbers_of_pixels(r.astype(np.float64)) for r in (root, root2)), strict=True)
    numbers = [number.astype(dtype) for both in pixels for number in both]
    Theta = np.asarray(np.random.default_rng(1).exponential(size=D.shape), dtype)
    d, theta = run(ARCSINE, ARCSINE_INPUTS, D, *numbers, 1.0, tangent=(Theta, 1.0, 0.0))
    want, scale, slope, slope_scale = [], [], [], []
    with mp.workdps(40):
        for a, r, r2, t in zip(*(v.tolist() for v in (parted(D, root, root2), root, root2, Theta)), strict=True):
            q, q2, k = mp.mpf(r) ** 2, mp.mpf(r2) ** 2, mp.mpf(r) * r2 - a
            v, v2, k1 = (
                2 / mp.pi * mp.asin(2 * top / mp.sqrt((1 + 2 * one) * (1 + 2 * two)))
                for top, one, two in ((q, q, q), (q2, q2, q2), (k, q, q2))
            )
            want.append((v + v2) / 2 - k1)
            scale.append((v + v2) / 2)
            rest = (1 + 2 * q) * (1 + 2 * q2)
            slope.append((t + 2 * k) * 4 / mp.pi / mp.sqrt(rest - 4 * k * k))
            slope_scale.append((t + 2 * mp.mpf(r) * r2) * 4 / mp.pi / mp.sqrt(rest - 4 * q * q2))
        assert worst(d, want, scale, dtype) < 8
        assert worst(theta, slope, slope_scale, dtype) < 16


def snapped(A: Array, U2: Array) -> Array:
    """A, or 2U for pixels that are opposite but for rounding."""
    return np.where(U2 * (1 - OPPOSITE_ROUNDINGS * np.finfo(A.dtype).eps) > A, A, U2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_relu_is_right_to_rounding(dtype: str) -> None:
    """D relative to (q + q') / 2, Theta to its largest; from A as it is."""
    tiny = TINY_ROOT[np.dtype(dtype).itemsize]
    D, root, root2 = entries(dtype, tiny)
    D = np.where((root == tiny) & (root2 == tiny), 0, D).astype(dtype)
    half, half2 = (r / dtype_of(dtype)(2**0.5) for r in (root, root2))
    Theta = np.random.default_rng(1).exponential(size=D.shape).astype(dtype)
    d, theta = run(KINKED, KINKED_INPUTS, D, half, half2, np.pi, 0.5, 1.0, tangent=(Theta, 1.0, 1.0))
    g = half - half2
    two = 4 * half * half2
    A = snapped(np.minimum(np.abs(D - g * g), two), two)
    want, scale, slope, slope_scale = [], [], [], []
    with mp.workdps(40):
        for a, h, h2, t, D0, U in zip(*(v.tolist() for v in (A, half, half2, Theta, D, two / 2)), strict=True):
            angle = 2 * mp.asin(mp.sqrt(mp.mpf(a) / (2 * U)))
            k = mp.mpf(U) - a
            want.append(mp.pi * mp.mpf(D0) + angle * k - mp.sqrt(mp.mpf(a) * (2 * U - a)))
            scale.append(mp.pi * (mp.mpf(h) ** 2 + mp.mpf(h2) ** 2))
            slope.append((t + 2 * k + 1) * (mp.pi - angle))
            slope_scale.append((t + 2 * U + 1) * mp.pi)
        assert worst(d, want, scale, dtype) < 4
        assert worst(theta, slope, slope_scale, dtype) < 4


def dtype_of(dtype: str) -> Any:
    return np.dtype(dtype).type


# ---------------------------------------------------------------------------------------------- for whole kernels

CONV = mn.Conv2d(4, 3, w_std=1.4, b_std=0.3)
SPECS = {
    "relu": (mn.Sequential(CONV, mn.ReLU(), CONV, mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1)), 2),
    "no bias": (mn.Sequential(mn.Conv2d(4), mn.LeakyReLU(0.3), mn.Conv2d(4), mn.Flatten(), mn.Dense(1)), 1),
    "zeros trained": (
        mn.Sequential(mn.Conv2d(4, b_std=0.5, b_init="zeros"), mn.LeakyReLU(0.3), CONV, mn.GlobalAvgPool()),
        1,
    ),
    "abs, residual": (
        mn.Sequential(CONV, mn.Residual(mn.Sequential(mn.Abs(), CONV)), mn.ReLU(), mn.AvgPool(2), mn.Flatten()),
        2,
    ),
    "erf": (mn.Sequential(CONV, mn.Erf(), CONV, mn.AvgPool(2), mn.Erf(), mn.Flatten(), mn.Dense(1)), 2),
    "erf, diagonal": (mn.Sequential(CONV, mn.Erf(), CONV, mn.Erf(), mn.Flatten(), mn.Dense(1)), 2),
    "erf first": (mn.Sequential(mn.Conv2d(4, b_init="zeros"), mn.Erf(), mn.Conv2d(4), mn.GlobalAvgPool()), 1),
}


def images(dtype: str) -> Array:
    """In general position, equal, opposite, scaled, nearly equal, with black pixels, and black."""
    x = np.random.default_rng(0).standard_normal((2, 4, 5, 2))
    black = x[0].copy()
    black[:, :3] = 0
    return np.stack([*x, x[0], -x[1], 1e-2 * x[0], 1e2 * x[0], x[0] + 1e-6 * x[1], black, 0 * x[0]]).astype(dtype)
