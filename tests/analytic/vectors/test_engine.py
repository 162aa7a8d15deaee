"""Test the tile engine for various numbers of rows, tile sizes and destinations of the result, and test its errors."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import atan2, pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import analytic as an
import analytic.recursion.unit_rows
import analytic.vectors.engine
import minintk as mn
from tests.kit.thinned import thinned

SPEC = mn.Sequential(
    mn.Dense(9, w_std=2**0.5, b_std=0.1), mn.ReLU(), mn.Dense(9, b_std=0.3), mn.Erf(), mn.Dense(1, w_std=1.5, b_std=0.1)
)


def data(n: int, d: int = 5, seed: int = 0) -> Any:
    """Return rows, some of which are (nearly) equal, opposite or zero."""
    x = np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(0.5, 2, n)[:, None]
    if n > 6:
        x[n // 2], x[n - 1], x[3] = x[0], -x[1], 0
        x[n // 3] = x[0] * (1 + 1e-7)
    return x


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", [1, 7, 16, 64])
def test_tile_sizes(size: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels agree between tiles of one entry, tiles that do not divide the matrix evenly, and a single tile."""
    x1, x2 = data(40).astype(dtype), data(23, seed=1).astype(dtype)
    kernel = an.kernel(SPEC)
    want = [*kernel.both(x1), *kernel.both(x1, x2)]
    monkeypatch.setattr(analytic.vectors.engine, "tile_width", lambda xp, n: size)
    got = [*kernel.both(x1), *kernel.both(x1, x2)]
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=0, atol=(1e-13 if dtype == np.float64 else 1e-6) * np.abs(b).max())


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    x = data(90)
    monkeypatch.setattr(analytic.vectors.engine, "tile_width", lambda xp, n: 16)
    many = an.kernel(SPEC).both(x)
    monkeypatch.setattr(
        analytic.recursion.unit_rows, "parallel", lambda work, items: [work(item) for item in list(items)[::-1]]
    )
    for a, b in zip(many, an.kernel(SPEC).both(x)):
        np.testing.assert_array_equal(a, b)


def test_the_same_rows_twice_are_symmetric() -> None:
    x = data(30)
    kernel = an.kernel(SPEC)
    for a, b, c in zip(kernel.both(x), kernel.both(x, x), kernel.both(x, x.copy())):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=0, atol=1e-14 * a.max())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_data_that_are_almost_parallel(dtype: Any) -> None:
    """Kernels of rows of one entry, and of rows dominated by a mean, equal those computed pair by pair in float64."""
    rng = np.random.default_rng(0)
    line, cone = rng.normal(size=(40, 1)).astype(dtype), (100 + rng.normal(size=(40, 30))).astype(dtype)
    for x in (line, cone):
        exact = x.astype(np.float64)
        kernel = an.kernel(SPEC)
        pairwise = np.array([[kernel.ntk(a[None], b[None])[0, 0] for b in exact[:3]] for a in exact])
        d = kernel.diag(exact).ntk
        error = np.abs(kernel.ntk(x)[:, :3] - pairwise) / np.sqrt(np.outer(d, d[:3]))
        assert error.max() < (1e-13 if dtype == np.float64 else 2e-6)


def test_nearly_equal_rows_keep_the_digits_of_their_angle() -> None:
    """Check Theta = 2/pi arctan(2 k / r) + 4 k / (pi r), r^2 = (1 + 2 q)(1 + 2 q') - 4 k^2, with r^2 as a Fraction.

    At q = 5e15 and an angle of 1e-8, rounding one row causes a relative error of 1e-9 in Theta. Because of the last
    two rows, the rows' centre is far from the first two.
    """
    x = 1e8 * np.array([[0.6, 0.8], [0.6 - 0.8e-8, 0.8 + 0.6e-8], [-0.5, 0.3], [0.2, -0.8]])
    a, b = ([Fraction(v) for v in row] for row in x[:2].tolist())
    q, q2, k = (sum(s * t for s, t in zip(*rows, strict=True)) / 2 for rows in ((a, a), (b, b), (a, b)))
    r = sqrt((1 + 2 * q) * (1 + 2 * q2) - 4 * k**2)
    want = 2 / pi * atan2(2 * k, r) + 4 * float(k) / (pi * r)
    got = an.kernel(mn.Sequential(mn.Dense(4), mn.Erf(), mn.Dense(1))).ntk(x)
    np.testing.assert_allclose([got[0, 1], got[1, 0]], want, rtol=1e-13)


def test_results_go_where_they_should(tmp_path: Path) -> None:
    x = data(50)
    kernel = an.kernel(SPEC)
    want = kernel.both(x)
    disk = (
        np.memmap(tmp_path / "nngp", np.float64, "w+", shape=(50, 50)),
        np.memmap(tmp_path / "ntk", np.float64, "w+", shape=(50, 50)),
    )
    got = kernel.both(x, out=disk)
    assert got.nngp is disk[0]
    for a, b in zip(got, want):
        np.testing.assert_array_equal(a, b)
    strided = np.zeros((50, 100))[:, ::2]
    np.testing.assert_array_equal(kernel.ntk(x, out=strided), want.ntk)
    np.testing.assert_array_equal(kernel.nngp(x, x[:20], out=np.empty((50, 20))), kernel.nngp(x, x[:20]))


def test_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analytic.vectors.engine, "tile_width", lambda xp, n: 16)
    seen: list[tuple[int, int]] = []
    an.kernel(SPEC).ntk(data(50), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i + 1, 6) for i in range(6)]


def test_what_does_not_fit_is_refused_before_work() -> None:
    x = data(50)
    kernel = an.kernel(SPEC)
    with pytest.raises(
        MemoryError,
        match=r"2 kernel\(s\) of 50 x 50 in float64 need .* GB .* are allowed: stream the result .*, or use float32$",
    ):
        kernel.both(x, memory=1000)
    with pytest.raises(MemoryError, match=r"in float32 need .*memmap\(\.\.\.\), or evaluate it in blocks of rows$"):
        kernel.both(x.astype(np.float32), memory=1000)
    with pytest.raises(MemoryError, match="to work in"):
        kernel.both(x, memory=2 * 50 * 50 * 8)  # only the results fit
    wide = np.broadcast_to(np.ones((1, 1), np.float32), (10_000_000, 1))
    with pytest.raises(
        MemoryError, match=r"need 4e[+]05 GB .* are free: stream the result to disk, store=PATH or out="
    ):
        kernel.ntk(wide)
    assert kernel.both(x, memory=10**9).ntk.shape == (50, 50)


def test_memory_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are raised before the rows pass through the layers, which would take minutes for ten million rows."""

    def worked(*arguments: Any) -> None:
        raise AssertionError("the rows went through the layers")

    monkeypatch.setattr(analytic.vectors.engine, "plan_vectors", worked)
    with pytest.raises(MemoryError):
        an.kernel(SPEC).ntk(np.broadcast_to(np.ones((1, 1)), (10_000_000, 1)))
    with pytest.raises(ValueError, match="out expects shape"):
        an.kernel(SPEC).ntk(data(10), out=np.empty((9, 9)))
    with pytest.raises(AssertionError, match="the rows went through"):
        an.kernel(SPEC).ntk(data(10))


def test_memory_stays_within_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Besides the result, a call needs memory for tiles and a copy of the rows, but for no further N x N array."""
    import tracemalloc

    for module in ("minintk.threads", "analytic.vectors.engine"):
        monkeypatch.setattr(f"{module}.cores", lambda: 2)
    x = np.random.default_rng(0).normal(size=(1500, 8))
    out = np.empty((1500, 1500)), np.empty((1500, 1500))
    kernel = an.kernel(SPEC)
    kernel.both(x, out=out)  # a first call loads and compiles code
    tracemalloc.start()
    kernel.both(x, out=out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * 12 * 256**2 * 8 + 1500 * 3000  # the tiles of two threads, and rows
    with pytest.raises(AssertionError):  # the result alone would be larger
        assert out[0].nbytes + out[1].nbytes < 2 * 12 * 256**2 * 8 + 1500 * 3000


def test_errors_in_a_tile_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> None:
        raise RuntimeError("a broken tile")

    monkeypatch.setattr(analytic.vectors.engine.VectorEngine, "tile", broken)
    with pytest.raises(RuntimeError, match="a broken tile"):
        an.kernel(SPEC).ntk(data(10))


# ------------------------------------------------------------------------------------------ other rows

OTHERS: dict[str, Any] = {
    "equal norms": lambda rng, d: rng.standard_normal((80, d)),
    "a narrow range of norms": lambda rng, d: rng.standard_normal((90, d)) * np.exp(0.1 * rng.standard_normal((90, 1))),
    "six decades of norms": lambda rng, d: rng.standard_normal((80, d)) * 10.0 ** rng.uniform(-3, 3, (80, 1)),
    "zeros": lambda rng, d: np.zeros((3, d)),
}
PHIS = mn.ReLU(), mn.Erf(), mn.Sin(), mn.Tanh(), mn.Sigmoid(), mn.Softplus()


@pytest.mark.filterwarnings("ignore:.*is by quadrature and exact to:UserWarning")
@pytest.mark.parametrize(("phi", "w_std", "others"), thinned(product(PHIS, (1.0, 4.0), OTHERS), every=5), ids=repr)
def test_a_pair_depends_on_other_rows_within_its_error(phi: mn.Activation, w_std: float, others: str) -> None:
    """Series, interpolations and tiles depend on all rows, but change a pair's kernels by at most the stated errors."""
    pytest.importorskip("analytic.phases", reason="Kernel.error knows no roundings without it")
    rng = np.random.default_rng(0)
    pair = rng.standard_normal((2, 9))
    pair[1] = pair[0] + 0.1 * pair[1]
    more = OTHERS[others](rng, 9)
    if others == "equal norms":
        pair, more = (3 * x / np.linalg.norm(x, axis=1, keepdims=True) for x in (pair, more))
    dense = mn.Dense(8, w_std=w_std, b_std=0.3)
    kernel = an.kernel(mn.Sequential(dense, phi, dense, phi, mn.Dense(1)))
    stated = kernel.error(pair) + kernel.error(np.concatenate([pair, more]))

    def moved(x: Any) -> float:
        """Return the largest change of the pair's entries, relative to sqrt(k k')."""
        off = 0.0
        for alone, among in zip(kernel.both(pair), kernel.both(np.concatenate([x, more])), strict=True):
            root = np.sqrt(np.diag(alone))
            off = max(off, float(np.abs((among[:2, :2] - alone) / root / root[:, None]).max()))
        return off

    assert moved(pair) <= stated
    if stated < 1e-9:
        assert moved(pair * (1 + 1e-7)) > stated  # control: this small change is noticed
