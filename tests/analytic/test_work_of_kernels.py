"""Count the work of infinite-width kernels: a fallback from a fast path is correct but can be ten times slower."""

from __future__ import annotations

import tracemalloc
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import analytic as an
import analytic.images.activations as image_activations
import analytic.images.engine as images
import analytic.images.pixel_pairs as pixel_pairs
import analytic.images.plan as image_plan
import analytic.images.steps as image_steps
import analytic.images.window_sums as window_sums
import analytic.recursion.quadrature as quadrature
import analytic.vectors.engine as vectors
import minintk as mn
from analytic.recursion.requests import Examples
from analytic.recursion.state import Block
from minintk.doors import through
from tests.kit.counting import counted

Array = np.ndarray[Any, Any]


def fully_connected(phi: mn.spec.Layer) -> mn.Sequential:
    return mn.Sequential(mn.Dense(9, w_std=1.4, b_std=0.1), phi, mn.Dense(9), phi, mn.Dense(1))


def again(x: Array, spec: mn.Sequential) -> tuple[int, int]:
    """Return the numbers of pairs that are restarted one by one and of tiles computed in float64 as a whole."""
    with (
        counted(vectors.VectorEngine, "restart", lambda self, places, block: places[0].shape[0]) as pairs,
        counted(
            vectors.VectorEngine, "tile", lambda self, i, j, s, precision=None: int(precision is not None)
        ) as tiles,
    ):
        an.kernel(spec).ntk(x)
    return sum(pairs), sum(tiles)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_images_that_are_mostly_their_mean_do_not_start_again(dtype: Any) -> None:
    """After centring, rows at angles of 0.03 are far apart, so no pair is restarted.

    Without centring, all pairs would be too close.
    """
    x = (10 + np.random.default_rng(0).normal(size=(150, 40)) / 5).astype(dtype)
    assert again(x, fully_connected(mn.ReLU())) == (0, 0)
    x[3], x[7] = x[20], x[50]  # each restarted pair counts once, or twice if below the diagonal of its tile
    pairs, tiles = again(x, fully_connected(mn.ReLU()))
    assert 2 <= pairs <= 4
    assert tiles == 0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_at_any_angle_do_not_start_again(dtype: Any) -> None:
    x = np.random.default_rng(0).normal(size=(150, 40)).astype(dtype)
    for phi in (mn.ReLU(), mn.Erf(), mn.GELU()):
        assert again(x, fully_connected(phi)) == (0, 0)
    same = np.repeat(x[:2], 75, axis=0)
    assert bool(again(same, fully_connected(mn.ReLU()))[1]) == (dtype == np.float32)


def test_of_a_symmetric_matrix_one_half_is_computed() -> None:
    x = np.random.default_rng(0).normal(size=(1000, 5))
    kernel = an.kernel(fully_connected(mn.ReLU()))
    for arguments, share in (((x,), 0.6), ((x, x[::-1].copy()), 1.0)):
        with counted(vectors.VectorEngine, "angles", lambda self, block, n, n2, square: block.p.size) as pairs:
            kernel.both(*arguments)
        assert 0.5 * share < sum(pairs) / 1000**2 <= share


def test_rows_that_one_tile_needs_are_not_copied() -> None:
    """If the kernel has few columns (8), x1 is prepared tile by tile.

    If the kernel has many columns (300), x1 is prepared in one pass.
    """
    x = np.random.default_rng(0).normal(size=(8000, 300)).astype(np.float32)
    kernel = an.kernel(fully_connected(mn.ReLU()))
    kernel.ntk(x[:300], x[:8])  # start threads and fill caches
    for count, copied in ((8, False), (300, True)):
        out = np.empty((8000, count), np.float32)
        tracemalloc.start()
        kernel.ntk(x, x[:count].copy(), out=out)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (peak > x.nbytes) == copied


@pytest.mark.parametrize(("n", "m", "tiles"), [(8000, 8, 8), (8000, 100, 9), (300, 8, 2), (60, 8, 1)])
def test_tiles_of_few_columns_are_taller(n: int, m: int, tiles: int) -> None:
    """The engine makes at least eight tiles if a pass over a tile costs more than starting the pass."""
    x = np.random.default_rng(0).normal(size=(n, 5))
    with counted(vectors.VectorEngine, "angles") as taken:
        an.kernel(fully_connected(mn.ReLU())).both(x, x[:m].copy())
    assert len(taken) == tiles


CLOSED = (mn.ReLU(), mn.LeakyReLU(), mn.Abs(), mn.Erf(), mn.Sin(), mn.GELU(), mn.Identity())


@pytest.mark.parametrize("phi", [*CLOSED, mn.Tanh()], ids=lambda phi: type(phi).__name__)
def test_a_closed_form_takes_no_quadrature(phi: mn.spec.Layer) -> None:
    x = np.random.default_rng(0).normal(size=(6, 4))
    with counted(quadrature, "hermite") as integrals:
        an.kernel(fully_connected(phi)).both(x)
    assert bool(integrals) == (phi not in CLOSED)


@pytest.mark.parametrize("phi", [mn.Erf(), mn.Sin(), mn.GELU()], ids=lambda phi: type(phi).__name__)
def test_what_different_norms_add_is_prepared_once(phi: mn.spec.Layer) -> None:
    """Interpolations over norms are prepared once for rows of similar norms, and once more for rows of other norms."""
    x = np.random.default_rng(0).uniform(1, 1.1, size=(12, 40))
    kernel = an.kernel(fully_connected(phi))
    kernel.both(x[:6])
    for scale, prepared in ((1.0, False), (2.0, True)):
        with counted(quadrature, "chebyshev") as curves:
            kernel.both(scale * x[6:])
        assert bool(curves) == prepared


def outer_products(x: Array) -> int:
    with counted(Block, "outer") as products, patch("analytic.vectors.plan.through", lambda door: None):
        an.kernel(fully_connected(mn.Tanh())).both(x)
    return len(products)


def test_rows_of_one_norm_share_the_coefficients_of_a_quadrature() -> None:
    """If all norms are equal, each degree of the series needs one factor per tile instead of an outer product."""
    x = np.sign(np.random.default_rng(0).normal(size=(30, 16)))
    assert outer_products(x) == 0
    x[0] *= 2
    assert outer_products(x) > 40


def test_vectors_of_a_quadrature_are_short() -> None:
    """A few principal axes represent the distances between curves phi(s z), where a series needs a hundred terms."""
    s = np.linspace(0.5, 3, 50)
    found = quadrature.mismatch(lambda xp, x: np.tanh(x), lambda xp, q: quadrature.mean_square(np.tanh, np.sqrt(q)), s)
    assert found is not None
    assert 3 <= found.y.shape[1] <= 24
    degrees = []
    with counted(quadrature, "distances_between", lambda xp, y: degrees.append(y.shape[1])):
        an.kernel(fully_connected(mn.Tanh())).both(np.random.default_rng(0).normal(size=(30, 16)))
    assert len(degrees) == 2
    assert max(degrees) <= 24


# ------------------------------------------------------------------------------------------------ images


def convolutional(phi: mn.spec.Layer, **how: Any) -> mn.Sequential:
    layers = [mn.Conv2d(4, 3, b_std=0.1, **how), phi] * 3
    return mn.Sequential(*layers, mn.GlobalAvgPool(), mn.Dense(1))


X = np.random.default_rng(0).normal(size=(5, 8, 8, 2))


@pytest.mark.parametrize("phi", [mn.ReLU(), mn.Erf(), mn.GELU(), mn.LayerNorm()], ids=lambda phi: type(phi).__name__)
def test_an_image_in_strips_is_the_image(phi: mn.spec.Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are unchanged up to rounding if activations process images in strips with their own coefficients."""
    kernel = an.kernel(convolutional(phi))
    x, strips = X[:, :5, :5], []
    want = kernel.both(x[:3], x[3:])
    with counted(pixel_pairs.Square, "pieces", lambda field, *finer: strips.append(field.d.size > 200)):
        monkeypatch.setattr(pixel_pairs, "BYTES_PER_PIECE", 8 * 100)
        got = kernel.both(x[:3], x[3:])
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
    assert any(strips)


def test_an_activation_works_on_strips_that_stay_in_cache() -> None:
    """Images of 24 x 24 have 331,776 pairs of pixels, more than twice the number processed together."""
    x = np.random.default_rng(0).normal(size=(2, 24, 24, 1))
    with counted(image_activations, "Scratch", lambda xp, dtype, size: size * np.dtype(dtype).itemsize) as taken:
        an.kernel(convolutional(mn.Tanh())).nngp(x[:1], x[1:])
    assert 3 * 2 * 3 <= len(taken) <= 3 * 2 * 4
    assert max(taken) <= pixel_pairs.BYTES_PER_PIECE + 24 * 24 * 8


@pytest.mark.parametrize(("how", "long"), [({}, True), ({"padding": "circular"}, False)], ids=["zeros", "circular"])
def test_windows_are_long_sums_where_they_can_be(how: Any, long: bool) -> None:
    """Window sums add contiguous values. Windows that wrap around use another path."""
    with counted(window_sums, "joint_sum") as sums:
        an.kernel(convolutional(mn.ReLU(), **how)).both(X)
    assert bool(sums) != long


@pytest.mark.parametrize(("phi", "selves"), [(mn.ReLU(), 5), (mn.Identity(), 0)], ids=["relu", "linear"])
def test_each_pair_of_images_is_followed_once(phi: mn.spec.Layer, selves: int) -> None:
    """Only half of the symmetric matrix is computed.

    If an activation follows a pooling, the kernel of each image with itself is also computed beforehand.
    """
    net = mn.Sequential(mn.Conv2d(4, 3, b_std=0.1), mn.AvgPool(2), mn.Conv2d(4, 3), phi, mn.GlobalAvgPool())
    with counted(
        images.PreparedImages, "field", lambda self, plan, w, i, j, *how: (i.stop - i.start) * (j.stop - j.start)
    ) as f:
        an.kernel(net).both(X)
    assert selves + 10 <= sum(f) <= selves + 15 + 5


def test_large_images_go_through_the_layers_pair_by_pair() -> None:
    """Two images of 20 x 20 pixels have 160,000 pairs of pixels, which is more than a piece holds.

    Two pairs of images exceed the cache, so the engine takes one pair at a time.
    """
    x = np.random.default_rng(0).normal(size=(3, 20, 20, 1))
    with counted(images.PreparedImages, "field", lambda self, plan, w, i, j, *how: (i.stop - i.start, j.stop)) as pairs:
        an.kernel(mn.Sequential(mn.Conv2d(4, 3), mn.ReLU(), mn.GlobalAvgPool())).nngp(x[:1], x[1:])
    assert pairs == [(1, 2), (1, 3)]


def test_short_sequences_go_through_the_layers_hundreds_of_pairs_at_a_time() -> None:
    """Batches have hundreds of pairs: in small batches, Python calls would cost more than the arithmetic."""
    attention = mn.Conv1d(4, 1), mn.ReLU(), mn.GlobalSelfAttention(4, heads=2), mn.GlobalAvgPool(), mn.Dense(1)
    x = np.random.default_rng(0).normal(size=(64, 16, 3))
    with counted(
        images.PreparedImages,
        "field",
        lambda self, plan, w, i, j, ntk, *kind: (i.stop - i.start) * (j.stop - j.start),
    ) as pairs:
        an.kernel(mn.Sequential(*attention)).both(x)
    assert len(pairs) <= 24
    assert 64 * 65 // 2 <= sum(pairs) - 64 <= 1.3 * 64 * 65 // 2


@pytest.mark.parametrize(
    ("pool", "shares"),
    [(mn.AvgPool(3, stride=1), False), (mn.AvgPool(3, stride=1, padding="same"), True)],
    ids=["inside", "beyond"],
)
def test_windows_inside_the_image_have_no_shares(pool: mn.spec.Layer, shares: bool) -> None:
    """Weights of windows inside the image sum to 1 up to rounding.

    These windows need no pass over the field to correct for pixels outside the image.
    """
    step = an.kernel(mn.Sequential(mn.Conv2d(4, 3), pool, mn.Flatten()))._program((8, 8, 2))[1]
    plan = image_plan.plan_images((step,), Examples(X))
    tile = image_steps.Tile(plan.layout, iter((None,)))
    _, row = image_steps.prepare(step, images.PreparedImages(plan, X).pixels, tile)
    assert (row.share is not None) == shares


def test_float32_stays_float32() -> None:
    """Kernels of float32 images are computed in float32, because float64 takes twice the time.

    Float64 is used only if the variances of the images differ too much and the network has biases.
    """
    x = X.astype(np.float32)
    unbiased = mn.Sequential(mn.Conv2d(4, 3), mn.ReLU(), mn.Flatten(), mn.Dense(1))
    for spec, scale, single in (
        (convolutional(mn.ReLU()), 20, True),
        (convolutional(mn.ReLU()), 1000, False),
        (convolutional(mn.Erf()), 20, True),
        (convolutional(mn.Erf()), 1000, False),
        (unbiased, 1000, True),
    ):
        with counted(image_plan, "FieldLayout", lambda xp, dtype, *more: np.dtype(dtype) == np.float32) as layouts:
            an.kernel(spec).both(x[:2], x[2:] * np.float32(scale))
        assert all(layouts) == single


def test_memory_of_an_image_kernel_does_not_grow_with_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """On two threads without Numba, the peak for 40 images is below 1.4 times the peak for 24 images."""
    for module in ("minintk.threads", "analytic.images.engine"):
        monkeypatch.setattr(f"{module}.cores", lambda: 2)
    if (faster := through("kernels")) is not None:
        monkeypatch.setattr(faster.planes, "BYTES_WORTH_NUMBA", 2**62)

    def peak(n: int) -> int:
        x = np.random.default_rng(0).normal(size=(n, 8, 8, 1))
        kernel = an.kernel(convolutional(mn.ReLU()))
        kernel.nngp(x[:2])
        tracemalloc.start()
        kernel.nngp(x)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(40) < 1.4 * peak(24)
