"""Test formulas for pairs of pixels in NumPy, Numba and the GPU's C against mpmath, entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int64
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import minintk as mn
from analytic.images.activations import TINY_ROOT, form_of
from analytic.recursion import arcs, scalar_forms
from analytic.recursion.closed_forms import closed_form
from analytic.recursion.scalar_forms import FORMS, KINKED, OPPOSITE_ROUNDINGS, Arithmetic, Form
from tests.kit.compiled import COMPILER, Kernel
from tests.kit.image_cases import DTYPES, EPS, Array
from tests.kit.oracles_kernels import dual
from tests.kit.thinned import thinned

Numbers = tuple[Any, ...]
Run = Callable[..., tuple[Array, Array]]


def by_numpy(form: Form, dtype: str, D: Array, theta: Array, one: Numbers, two: Numbers, k: Array) -> Any:
    return form.through(Arithmetic(np, dtype), D, theta, one, two, tuple(k.tolist()))


def by_numba(form: Form, dtype: str, D: Array, theta: Array, one: Numbers, two: Numbers, k: Array) -> Any:
    """Run compiled steps on whole vectors of entries, and check that D' is the same with and without Theta."""
    from analytic.fast.compiled import steps_of_form

    n = -(-D.size // 16) * 16
    d, t, *numbers = (np.resize(v, (*v.shape[:-1], n)) for v in (D, theta, np.stack(one), np.stack(two)))
    where = [a.ctypes.data for a in (d, t, *numbers)]
    at_address: Any = CFUNCTYPE(None, *[c_int64] * 7)
    run = steps_of_form(form.name, np.dtype(dtype), True, len(one), len(k))
    at_address(run)(*where, n, n, k.ctypes.data)
    alone = np.resize(D, n)
    run = steps_of_form(form.name, np.dtype(dtype), False, len(one), len(k))
    at_address(run)(alone.ctypes.data, 0, *where[2:], n, n, k.ctypes.data)
    assert np.array_equal(d, alone)
    return d[: D.size], t[: D.size]


def by_c(form: Form, dtype: str, D: Array, theta: Array, one: Numbers, two: Numbers, k: Array) -> Any:
    from analytic.fast.gpu_kernels import Text
    from analytic.fast.symbols import Symbol

    code = Text(dtype)
    names = ["D", "Theta", *(f"a{i}" for i in range(len(one))), *(f"b{i}" for i in range(len(two)))]
    symbols = iter(Symbol(code, name) for name in names)
    first, second = next(symbols), next(symbols)
    left, right = (tuple(next(symbols) for _ in side) for side in (one, two))
    factors = tuple(Symbol(code, f"k[{i}]") for i in range(len(k)))
    after, slope = form.through(code, first, second, left, right, factors)
    body = " ".join(code.statements) + f" theta = {slope.name}; d = {after.name};"
    found = np.empty_like(D), np.empty_like(D)
    inputs = ", ".join(f"T {name}" for name in names) + ", raw T k"
    Kernel("form", inputs, "T d, T theta", body)(D, theta, *one, *two, k, *found)
    return found


RUNS = {"numpy": by_numpy, "numba": by_numba, "c": by_c}


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Run:
    """Return one implementation of the forms, or skip the test if it is not available on this machine."""
    if request.param != "numpy":
        pytest.importorskip("analytic.fast", reason="the satellite of speed was taken away")
    if request.param == "numba":
        pytest.importorskip("numba")
    if request.param == "c" and COMPILER is None:
        pytest.skip("no C compiler on this machine")
    return RUNS[request.param]


def entries(dtype: str, sizes: list[float]) -> tuple[Array, Array, Array]:
    """Return D = (q + q') / 2 - k, s = sqrt(q) and s' of random, (nearly) equal, (nearly) opposite and black pairs."""
    rng = np.random.default_rng(0)
    s, s2 = (v.reshape(-1) for v in np.meshgrid(sizes, sizes))
    s, s2 = (np.concatenate([v, np.exp(rng.normal(size=7) / 2)]) for v in (s, s2))
    angles = np.array([0.0, 1e-9, 1e-4, 0.3, 1.5, 3.0, np.pi - 1e-5, np.pi])[:, None]
    D = (s - s2) ** 2 / 2 + 2 * s * s2 * np.sin(angles / 2) ** 2
    flat = [np.broadcast_to(v, D.shape).reshape(-1).astype(dtype) for v in (D, s, s2)]
    return flat[0], flat[1], flat[2]


# ------------------------------------------------------------------------------------- all except ReLU-like ones

LAYERS: dict[str, mn.spec.Layer] = {
    "erf": mn.Erf(),
    "gelu": mn.GELU(),
    "sin": mn.Sin(),
    "sin of a phase": mn.Sin(1.3, 0.7, 0.4),
    "cos": mn.Sin(1.0, 1.0, np.pi / 2),
    "rbf": mn.Sin(2**0.5, 0.9, np.pi / 4),
    "exp": mn.Exp(0.5, 0.3),
    "gaussian": mn.Gaussian(0.8, -0.6),
    "gaussian that grows": mn.Gaussian(1.0, 0.005),
    "rectified square": mn.RectifiedMonomial(2),
}
FROM_D = {"exponential"}
"""Forms that compute k directly from D. The other forms compute k from A = s s' - k."""


def form_for(name: str) -> Form:
    layer: Any = LAYERS[name]
    form = form_of(closed_form(layer))
    assert form is not None
    return form


@cache
def truth(name: str, dtype: str) -> tuple[Numbers, Numbers, Numbers]:
    """Return D, s, s' and Theta of pairs, then D' and Theta' from mpmath, and the scales of their errors."""
    form, (D, s, s2), layer = form_for(name), entries(dtype, [0.0, 1e-4, 1.0, 1.0 + 1e-5, 5.0]), LAYERS[name]
    theta = np.asarray(np.random.default_rng(1).exponential(size=D.shape), dtype)
    gap, product = s - s2, s * s2
    A = snapped(np.maximum(D - gap * gap / 2, 0), 2 * product)
    found: list[list[float]] = [[], [], [], []]
    with mp.workdps(40):
        for D0, a, r, r2, t in zip(*(v.tolist() for v in (D, A, s, s2, theta)), strict=True):
            q, q2 = mp.mpf(r) ** 2, mp.mpf(r2) ** 2
            k = (q + q2) / 2 - D0 if form.name in FROM_D else mp.mpf(r) * r2 - a
            (v, dv), (v2, dv2), (e, de) = (dual(layer, *three) for three in ((q, q, q), (q2, q2, q2), (q, q2, k)))
            top = (dv + dv2) / 2 * (t + 2 * r * r2 + 0.5)
            top = mp.inf if top < 1e-20 else top  # for cos at black pixels, top is only the rounding of pi/2
            for one, number in zip(found, ((v + v2) / 2 - e, (t + 2 * k + 0.5) * de, (v + v2) / 2, top), strict=True):
                one.append(mp.nstr(number, 30))
    after, slope, *scales = (np.array([np.longdouble(number) for number in one]) for one in found)
    return (D, s, s2, theta), (after, slope), (scales[0], scales[1])


def worst(name: str, dtype: str, run: Run, change: Callable[[list[Any]], None] | None = None) -> float:
    """Return the largest error of D' and Theta', in units of eps times the mean of the values at (u, u), (u', u')."""
    form, ((D, s, s2, theta), want, scales) = form_for(name), truth(name, dtype)
    sides = [[*form.numbers(np, q), np.ones_like(q)] for q in (v.astype(np.float64) ** 2 for v in (s, s2))]
    if change is not None:
        change(sides[0])
    one, two = (tuple(v.astype(dtype) for v in side) for side in sides)
    got = run(form, dtype, D, theta, one, two, np.array([1.0, 0.5, 1.0, *form.constants], dtype))
    errors = [abs(a - b) / np.where(scale > 0, scale, np.inf) for a, b, scale in zip(got, want, scales, strict=True)]
    return float(np.max(errors)) / EPS[dtype]


@pytest.mark.parametrize(("dtype", "name"), thinned(product(DTYPES, LAYERS), every=2))
def test_formulas_are_right_to_rounding(name: str, dtype: str, run: Run) -> None:
    """Errors are below 32 eps for s up to 5, where variances reach 25 and errors of e^-D reach 25 eps."""
    assert worst(name, dtype, run) < 32


@pytest.mark.parametrize("name", LAYERS)
def test_each_number_of_a_pixel_counts(name: str) -> None:
    """Negative control: the check fails if a precomputed value of the first pixels is multiplied by 1 + 1e-9.

    For Rbf, whose phase is pi/4, only the first value matters.
    """
    for number in range(1 if name == "rbf" else len(form_for(name).numbers(np, np.ones(1)))):

        def change(numbers: list[Any], number: int = number) -> None:
            numbers[number] = numbers[number] * (1 + 1e-9)

        assert worst(name, "float64", by_numpy, change) > 1e4


@pytest.mark.parametrize("name", LAYERS)
def test_outside_the_image(name: str, run: Run) -> None:
    """If one pixel is outside the image, D' is E phi^2 / 2 of the other, and Theta' is 0. For equal pixels, D' is 0."""
    form, q = form_for(name), np.exp(np.linspace(-3, 3, 16))
    one = (*form.numbers(np, q), q)
    zero, theta = tuple(0 * v for v in one), np.ones(16)
    k = np.array([1.0, 0.5, 1.0, *form.constants])
    for sides in ((one, zero), (zero, one)):
        with np.errstate(invalid="ignore"):  # the library passes no outside pixels to NumPy
            d, t = run(form, "float64", q / 2, theta, *sides, k)
        np.testing.assert_array_equal(d, q)
        np.testing.assert_array_equal(t, 0)
    assert not run(form, "float64", 0 * q, theta, one, one, k)[0].any()


def test_signs_have_the_angle(run: Run) -> None:
    """For Sign, D' is 2 / pi times the angle, up to the square root of eps if the angle is near 0 or pi."""
    D, s, s2 = entries("float64", [0.0, 1.0, 5.0])
    form, q, q2 = scalar_forms.SIGN, s * s, s2 * s2
    one, two = ((*form.numbers(np, v), np.ones_like(v)) for v in (q, q2))
    d, _ = run(form, "float64", D, D, one, two, np.array([0.0, 0.0, 1.0]))
    angle = np.arccos(np.clip(((q + q2) / 2 - D) / np.where(q * q2 > 0, s * s2, 1), -1, 1))
    np.testing.assert_allclose(d, np.where(q * q2 > 0, 2 * angle / np.pi, ((q > 0) * 1.0 + (q2 > 0)) / 2), atol=3e-7)


@pytest.mark.parametrize("s", [1e60, 1e149])
def test_large_gelus_are_relus(s: float, run: Run) -> None:
    """Up to terms of order 1/s, D' = (q + q')/4 - E relu relu', also near the largest floats."""
    angle, size = np.linspace(0, np.pi, 16), np.full(16, s)
    form, D = scalar_forms.GELU, 2 * (size * np.sin(angle / 2)) ** 2
    one, two = ((*form.numbers(np, v * v), np.ones(16)) for v in (size, 0.5 * size))
    E = (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)
    for other, v, part in ((one, 0.5, 1.0), (two, 0.3125, 0.5)):
        d = D if part == 1 else D / 2 + size**2 / 8
        after, slope = run(form, "float64", d, np.zeros(16), one, other, np.array([0.0, 1.0, 1.0]))
        np.testing.assert_allclose(after / s**2, v - E * part, rtol=0, atol=1e-15)
        np.testing.assert_allclose(slope, (np.pi - angle) / (2 * np.pi), atol=1e-7)


# ------------------------------------------------------------------------------------------ ReLU, LeakyReLU, Abs


def snapped(A: Array, U2: Array) -> Array:
    """Return A, or U2 for pixels that are opposite up to rounding."""
    return np.where(U2 * (1 - OPPOSITE_ROUNDINGS * np.finfo(A.dtype).eps) > A, A, U2)


def parted(D: Array, half: Array, half2: Array) -> tuple[Array, Array]:
    """Return A = D - (half - half2)^2 with one and with two roundings, as with and without a fused multiply-add."""
    gap, U2 = half - half2, 4 * half * half2
    with mp.workdps(60):
        exact = [float(mp.mpf(D0) - mp.mpf(g) ** 2) for D0, g in zip(D.tolist(), gap.tolist(), strict=True)]
    once, twice = np.abs(np.array(exact)).astype(D.dtype), np.abs(D - gap * gap)
    return snapped(np.minimum(once, U2), U2), snapped(np.minimum(twice, U2), U2)


def kinked_errors(dtype: str, run: Run) -> float:
    """Return the largest error of D' and Theta' in units of eps.

    The error of D' is relative to pi (q + q') / 2, and the error of Theta' to the value at angle 0.
    """
    tiny, T = TINY_ROOT[np.dtype(dtype).itemsize], np.dtype(dtype).type
    D, root, root2 = entries(dtype, [tiny, 1e-4, 1.0, 1.0 + 1e-5, 30.0])
    D = np.where((root == tiny) & (root2 == tiny), 0, D).astype(dtype)
    half, half2 = (r / T(2**0.5) for r in (root, root2))
    theta = np.random.default_rng(1).exponential(size=D.shape).astype(dtype)
    d, t = run(KINKED, dtype, D, theta, (half, half), (half2, half2), np.array([1.0, 1.0, np.pi, 0.5, 1.0], dtype))
    found = []
    for A in parted(D, half, half2):
        rows = zip(*(v.tolist() for v in (d, t, A, half, half2, 2 * (half * half2), D, theta)), strict=True)
        errors: list[list[float]] = [[], []]
        with mp.workdps(40):
            for got, slope, a, h, h2, U, D0, th in rows:
                angle = 2 * mp.asin(mp.sqrt(min(mp.mpf(a) / (2 * mp.mpf(U)), mp.mpf(1))))
                want = mp.pi * mp.mpf(D0) + angle * (mp.mpf(U) - a) - mp.sqrt(mp.mpf(a) * max(2 * mp.mpf(U) - a, 0))
                errors[0].append(float(abs(got - want) / (mp.pi * (mp.mpf(h) ** 2 + mp.mpf(h2) ** 2))))
                want = (th + 2 * (mp.mpf(U) - a) + 1) * (mp.pi - angle)
                errors[1].append(float(abs(slope - want) / ((th + 2 * U + 1) * mp.pi)))
        found.append(errors)
    return float(np.min(found, axis=0).max()) / EPS[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_relu_is_right_to_rounding(dtype: str, run: Run) -> None:
    assert kinked_errors(dtype, run) < 4


@pytest.mark.parametrize("off", [-1e-15, 0.0, 1e-15, -1e-6])
def test_abs_of_opposite_pixels_is_equal(off: float, run: Run) -> None:
    """If D equals 2q up to rounding, D' is exactly 0. If the difference is larger, D' is not 0."""
    half = np.sqrt(np.exp(np.linspace(-3, 3, 16)))
    side = half, np.pi / 2 * half**2
    d, _ = run(KINKED, "float64", 4 * half**2 * (1 + off), half, side, side, np.array([0.0, 0.0, np.pi / 2, 1.0, 1.0]))
    assert np.all((d == 0) == (off > -1e-6))


@pytest.mark.parametrize("which", [0, 1])
def test_a_series_cut_short_is_found_out(which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: errors exceed 50 eps if the polynomial for P or for R has seven fewer terms."""
    pytest.importorskip("analytic.fast", reason="the satellite of speed was taken away")
    if COMPILER is None:
        pytest.skip("no C compiler on this machine")
    found = list(arcs.arc_series(np.dtype("float64")))
    found[which] = tuple(arcs.short_series(arcs.power_series()[which], len(found[which]) - 7))
    monkeypatch.setattr("analytic.fast.symbols.arc_series", lambda dtype: tuple(found))
    assert kinked_errors("float64", by_c) > 50


def test_forms_of_one_kind_share_their_code() -> None:
    """Compiled code is looked up by name, so forms with one name can differ in constants but not in code."""
    for name in LAYERS:
        form = form_for(name)
        assert replace(FORMS[form.name], numbers=form.numbers, constants=form.constants) == form
