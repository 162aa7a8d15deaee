"""The step of ReLU by Numba: against mpmath, entry by entry, and against NumPy's passes on whole kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from oracles_kernels import image_errors, image_kernels
from test_gpu_kernels import DTYPES, EPS, SPECS, entries, images, snapped

import analytic as an
import analytic.images.engine
import minintk as mn
from analytic.images.activations import TINY_ROOT

pytest.importorskip("numba")
from analytic.images import numba_kernels

Array = np.ndarray[Any, Any]
RELUS = [name for name in SPECS if "erf" not in name]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numba whatever the size; how often it was asked."""
    asked = [0]
    plain = numba_kernels.kinked

    def kinked(*arguments: Any) -> None:
        asked[0] += 1
        plain(*arguments)

    monkeypatch.setattr(numba_kernels, "kinked", kinked)
    monkeypatch.setattr(analytic.images.engine, "BYTES_WORTH_NUMBA", 0)
    return asked


def distances(dtype: str) -> tuple[float, float]:
    """The largest `errors` of D' and of Theta'."""
    tiny = TINY_ROOT[np.dtype(dtype).itemsize]
    D, root, root2 = entries(dtype, tiny)
    D = np.where((root == tiny) & (root2 == tiny), 0, D).astype(dtype)
    half, half2 = (r / np.dtype(dtype).type(2**0.5) for r in (root, root2))
    Theta = np.random.default_rng(1).exponential(size=D.shape).astype(dtype)
    d, theta, alone = (v.reshape((-1, 1, 1)).copy() for v in (D, Theta, D))
    for i in range(D.size):
        one, two = half[i : i + 1, None], half2[i : i + 1, None]
        numba_kernels.kinked(d[i : i + 1], one, two, np.pi, 1.0, theta[i : i + 1], 1.0, 0.5)
        numba_kernels.kinked(alone[i : i + 1], one, two, np.pi, 1.0)
    assert np.array_equal(d, alone)
    once, twice = parted(D, half, half2)
    found = [errors(d[:, 0, 0], theta[:, 0, 0], A, half, half2, D, Theta, dtype) for A in (once, twice)]
    nearest = np.min(found, axis=0).max(axis=-1)
    return float(nearest[0]), float(nearest[1])


def parted(D: Array, half: Array, half2: Array) -> tuple[Array, Array]:
    """A = D - (half - half2)^2 as the entries say it: with one rounding, and with two, as the processor may do it."""
    gap, U2 = half - half2, 4 * half * half2
    with mp.workdps(60):
        exact = [float(mp.mpf(D0) - mp.mpf(g) ** 2) for D0, g in zip(D.tolist(), gap.tolist(), strict=True)]
    once, twice = np.abs(np.array(exact)).astype(D.dtype), np.abs(D - gap * gap)
    return snapped(np.minimum(once, U2), U2), snapped(np.minimum(twice, U2), U2)


def errors(
    d: Array, theta: Array, A: Array, half: Array, half2: Array, D: Array, Theta: Array, dtype: str
) -> list[list[float]]:
    """Of D', relative to c (q + q') / 2, and of Theta', relative to its largest, in roundings, entry by entry."""
    found: list[list[float]] = [[], []]
    rows = zip(*(v.tolist() for v in (d, theta, A, half, half2, 2 * (half * half2), D, Theta)), strict=True)
    with mp.workdps(40):
        for got, slope, a, h, h2, product, D0, t in rows:
            U = mp.mpf(product)
            angle = 2 * mp.asin(mp.sqrt(min(mp.mpf(a) / (2 * U), mp.mpf(1))))
            want = mp.pi * mp.mpf(D0) + angle * (U - a) - mp.sqrt(mp.mpf(a) * max(2 * U - a, 0))
            found[0].append(float(abs(got - want) / (mp.pi * (mp.mpf(h) ** 2 + mp.mpf(h2) ** 2))) / EPS[dtype])
            want = (t + 2 * (U - a) + 1) * (mp.pi - angle)
            found[1].append(float(abs(slope - want) / ((t + 2 * U + 1) * mp.pi)) / EPS[dtype])
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_relu_is_right_to_rounding(dtype: str) -> None:
    assert max(distances(dtype)) < 4


def test_a_series_cut_short_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last seven terms, 1e-11, are left out."""
    short = np.array([*reversed(numba_kernels.arctan_series(12)), 1.0, np.pi / 2])
    planted = np.concatenate([np.zeros(numba_kernels.ARCTAN_TERMS + 2 - short.size), short])
    monkeypatch.setattr(numba_kernels, "constants", lambda dtype: planted)
    assert max(distances("float64")) > 1000


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_have_the_precision_of_what_they_meet(dtype: str) -> None:
    """A float64 among them would make a float32 step twice as slow, silently."""
    assert numba_kernels.constants(np.dtype(dtype)).dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RELUS)
def test_kernels_with_compiled_steps_are_the_kernels(name: str, dtype: str, request: pytest.FixtureRequest) -> None:
    """As near to the truth as NumPy's passes come, for the NNGP alone too; black pixels are left to the passes."""
    (spec, _), x = SPECS[name], images(dtype)
    infinite, truth = an.kernel(spec), image_kernels(spec, x)
    plain = infinite.both(x)
    asked = request.getfixturevalue("compiled")
    both = infinite.both(x)
    assert asked[0] > 0
    np.testing.assert_array_equal(infinite.nngp(x), both.nngp)
    for found, passes in zip(image_errors(both, truth), image_errors(plain, truth), strict=True):
        assert found <= 4 * passes + 40 * EPS[dtype]


def test_only_large_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen images of 16 x 16 through four ReLUs are large, eight are not, nor sixteen in float32; nothing is without
    Numba, or for erf."""

    def large(phi: mn.spec.Layer, images: int, item: int = 8) -> bool:
        net = mn.Sequential(*[mn.Conv2d(8, 3), phi] * 4, mn.GlobalAvgPool(), mn.Dense(1))
        steps = an.kernel(net)._program((16, 16, 3))
        return analytic.images.engine.worth_compiling(steps, (16, 16, 3), images**2 // 2, item)

    assert large(mn.ReLU(), 16)
    assert not large(mn.ReLU(), 8)
    assert not large(mn.ReLU(), 16, 4)
    assert large(mn.ReLU(), 24, 4)
    assert not large(mn.Erf(), 16)
    monkeypatch.setattr(analytic.images.engine, "numba_works", lambda: False)
    assert not large(mn.ReLU(), 16)


def test_numba_may_be_missing_or_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing: nothing happens.  Broken, as with a NumPy that it does not know: a warning, and NumPy's passes."""
    works = analytic.images.engine.numba_works.__wrapped__
    assert works()
    monkeypatch.setitem(sys.modules, "analytic.images.numba_kernels", None)
    with pytest.warns(RuntimeWarning, match="does not load"):
        assert not works()
    monkeypatch.setattr(analytic.images.engine, "find_spec", lambda name: None)
    assert not works()


def test_without_a_place_for_its_files_it_compiles_anew() -> None:
    """NUMBA_CACHE_DIR names a file: nothing can be kept there."""
    code = """
import numpy as np
from analytic.images.numba_kernels import kinked
D, one = np.ones((1, 1, 4)), np.ones((1, 4))
kinked(D, one, one, 3.0, 1.0)
print(D.tolist())
"""
    place = {**os.environ, "NUMBA_CACHE_DIR": os.devnull + "/nowhere"}
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], env=place, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("[[[")
