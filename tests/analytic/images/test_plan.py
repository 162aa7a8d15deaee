"""Test the tiles, batches and pieces of an image kernel, and the estimates of their memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.images import engine
from analytic.images.pixel_pairs import BYTES_PER_PIECE
from analytic.images.plan import ImagePlan, pixel_pairs_followed, plan_images
from analytic.recursion.requests import SECONDS_PER_PAIR, Examples

Array = np.ndarray[Any, Any]

CONV = mn.Conv2d(4, 3, b_std=0.2)
FLAT, POOL = mn.Flatten(), mn.GlobalAvgPool()


def network(end: mn.spec.Layer, phi: mn.spec.Layer | None = None) -> mn.Sequential:
    return mn.Sequential(CONV, phi or mn.ReLU(), CONV, mn.ReLU(), end, mn.Dense(1))


def blank(*shape: int) -> Any:
    """Return images of zeros that take almost no memory."""
    return np.broadcast_to(np.zeros(()), shape)


def planned(spec: mn.Sequential, x: Any, other: Any = None) -> ImagePlan:
    """Return the image plan of a spec, without planes."""
    return replace(plan_images(an.kernel(spec)._program(x.shape[1:]), Examples(x, other)), by_offsets=0)


@pytest.mark.parametrize("host", [True, False])
@pytest.mark.parametrize("end", [FLAT, POOL], ids=repr)
@pytest.mark.parametrize("side", [1, 5, 24, 120])
def test_as_many_pairs_go_together_as_a_piece_holds(
    host: bool, end: mn.spec.Layer, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "on_host", lambda xp: host)
    plan = planned(network(end), blank(3, side, side + 1, 2))
    pair, room = 8 * (side * (side + 1)) ** (1 if end == FLAT else 2), BYTES_PER_PIECE if host else 2**27
    count = engine.pairs_at_once(plan)
    assert count == 1 or count * pair <= room
    assert (count + 1) * pair > room


@pytest.mark.parametrize(("n", "m", "most"), [(1, 1, 1), (7, 7, 3), (9, 9, 9), (9, 8, 20), (16, 3, 10**6)])
@pytest.mark.parametrize("planes", [0, 2])
@pytest.mark.parametrize("same", [True, False])
def test_batches_hold_every_pair_of_a_tile_once(
    n: int, m: int, most: int, planes: int, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch has at most `most` pairs and no room for another line.

    In a symmetric tile or with planes, a batch has at most a quarter of the tile's lines (rounded up).
    """
    monkeypatch.setattr(engine, "pairs_at_once", lambda plan: most)
    m = n if same else m
    tile: Any = SimpleNamespace(plan=SimpleNamespace(by_offsets=planes))
    found = [(range(a.start, a.stop), range(b.start, b.stop)) for a, b in engine.ImageEngine.batches(tile, n, m, same)]
    pairs = [pair for a, b in found for pair in product(a, b)]
    assert len(set(pairs)) == len(pairs)
    assert {(i, j) for i, j in pairs if i <= j or not same} == {(i, j) for i in range(n) for j in range(i * same, m)}
    assert all(i < n and j < m for i, j in pairs)
    assert all(a[0] <= b[0] or not same for a, b in found)
    deep, wide = (len(side) for side in found[0])
    assert deep * wide <= most < deep * wide + max(deep, wide) or wide == m
    assert deep == min(n, most // wide, -(-n // 4) if same or planes else n)


def seconds(plan: ImagePlan, size: int) -> float:
    """Estimate the time in seconds to compute a tile of size x size images."""
    pairs = pixel_pairs_followed(plan.program, plan.shape) * size * size
    return pairs * SECONDS_PER_PAIR * len(plan.program) / (engine.FASTER if plan.by_offsets else 1)


@pytest.mark.parametrize(("end", "host", "summed", "most"), [
    (FLAT, True, 0, 32), (FLAT, False, 0, 256), (POOL, True, 0, 8), (POOL, False, 0, 32),
    (FLAT, True, 3, 64), (FLAT, False, 3, 64), (POOL, True, 3, 32),
])  # fmt: skip
@pytest.mark.parametrize("planes", [0, 3])
def test_tiles_are_as_small_as_is_worth_it(
    end: mn.spec.Layer, host: bool, summed: int, most: int, planes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel has 12 tiles per side, fewer if tiles take too little time, more if the images per tile are limited.

    On a GPU, a tile has as many images as the limit allows.
    """
    monkeypatch.setattr(engine, "on_host", lambda xp: host)
    monkeypatch.setattr(ImagePlan, "summed", bool(summed))
    shortest = engine.SHORTEST_TILE * (5 if summed else 1)
    for side in (2, 5, 16):
        plan = replace(planned(network(end), blank(2, side, side, 1)), by_offsets=planes or summed)
        limit = max(8, min(32, engine.pairs_at_once(plan))) if end == POOL and not summed else most
        for n in (1, 2, 9, 13, 50, 97, 400):
            size = engine.images_per_tile(plan, n)
            assert 1 <= size <= min(limit, n)
            assert size == min(limit, n) or (host and 12 * size >= n and seconds(plan, size) >= shortest)
            assert size == 1 or not host or 12 * (size - 1) < n or seconds(plan, size - 1) < shortest
        assert engine.images_per_tile(plan, 10**6) == limit


def test_tiles_of_tall_kernels_are_those_of_the_taller_side() -> None:
    plan = planned(network(FLAT), blank(2, 3, 3, 1))
    for shape in ((200, 3), (3, 200)):
        whole = engine.image_engine(plan, Examples(*(blank(n, 3, 3, 1) for n in shape)), (True, True))
        assert whole.size == engine.images_per_tile(plan, 200) > 3


def test_tiles_of_pixels_hold_so_many_numbers() -> None:
    """A tile has at least one image on each side, and at most as many as the kernel has."""
    plan = planned(mn.Sequential(CONV, mn.ReLU()), blank(2, 8, 8, 1))
    for F, n, size in ((64, 99, 16), (64, 9, 9), (1000, 9, 1), (1025, 9, 1), (2, 1000, 512)):
        assert engine.images_per_tile(replace(plan, pixels=(1, F)), n) == size


@pytest.mark.parametrize(("phi", "most", "n", "host", "size"), [
    (mn.Tanh(), 99, 99, True, 1), (mn.Tanh(), 99, 99, False, 1), (mn.ReLU(), 40, 99, True, 10),
    (mn.ReLU(), 40, 9, True, 3), (mn.ReLU(), 40, 99, False, 40), (mn.ReLU(), 3, 9, True, 1), (mn.ReLU(), 9, 0, True, 1),
])  # fmt: skip
def test_so_many_images_meet_themselves_at_a_time(
    phi: mn.spec.Layer, most: int, n: int, host: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, a batch has at most `most` / 4 images (but at least one), because more arrays are in use.

    It also has at most a quarter of all images (rounded up), so that four cores are used. With tanh, it has one image.
    """
    monkeypatch.setattr(engine, "on_host", lambda xp: host)
    monkeypatch.setattr(engine, "pairs_at_once", lambda plan: most)
    assert engine.selves_at_once(planned(network(POOL, phi), blank(2, 3, 3, 1)), n) == size


# ------------------------------------------------------------------------------ the memory of these parts


def memory(plan: ImagePlan, *x: Any, size: int | None = None, cores: int = 1) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "cores", lambda: cores)
        return engine.working_memory(plan, Examples(*x), size)


def test_memory_grows_by_what_is_recorded_of_each_image() -> None:
    """Each image of x1 and x2 adds memory for D and Theta, in float64, for every output pixel of every pooling.

    Without pooling, an image adds nothing.
    """
    net = mn.Sequential(CONV, mn.AvgPool(2), CONV, mn.Residual(mn.Sequential(mn.ReLU(), CONV)), POOL)
    few, many, others = (blank(n, 8, 6, 1) for n in (900, 2500, 700))
    plan, each = planned(net, few), 16 * (4 * 3 + 1)
    assert plan.recorded
    assert memory(plan, many) - memory(plan, few) == 1600 * each
    assert memory(plan, few, others) - memory(plan, few) == 700 * each
    flat = planned(network(FLAT), few)
    assert memory(flat, many) == memory(flat, few)


@pytest.mark.parametrize(("n", "cores", "threads"), [(900, 1, 1), (900, 3, 3), (3, 8, 3), (0, 2, 1)])
def test_memory_is_of_each_thread(n: int, cores: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is counted once for each thread.

    There are at most as many threads as images, and one thread on a GPU.
    """
    x = blank(n, 8, 6, 1)
    plan = planned(network(FLAT), x)
    assert memory(plan, x, size=2, cores=cores) == threads * memory(plan, x, size=2)
    monkeypatch.setattr(engine, "on_host", lambda xp: False)
    assert memory(plan, x, cores=cores) == memory(plan, x)


def test_memory_of_a_tile_grows_with_its_images() -> None:
    """The memory for prepared images is proportional to the number of images. A quadrature adds memory for each pixel.

    Results per pixel are counted eight times.
    """
    x = blank(900, 8, 6, 7)
    for phi, series in ((mn.ReLU(), 0), (mn.GELU(), 0), (mn.Tanh(), 80_000)):
        plan = planned(network(FLAT, phi), x)
        pixel = 40 * 7 + 100 * len(plan.program) + series
        assert engine.prepared_bytes(plan, Examples(x), 20) == 20 * 48 * pixel
        assert memory(plan, x, size=40) - memory(plan, x, size=30) >= 20 * 48 * pixel
    pooled = planned(mn.Sequential(CONV, mn.AvgPool(2), CONV, POOL), x)
    assert engine.prepared_bytes(pooled, Examples(x), 5) == 5 * (48 * (40 * 7 + 100 * 4) + 80 * (4 * 3 + 1))
    whole = replace(planned(mn.Sequential(CONV, mn.ReLU()), x), pixels=(1, 48))
    first, second = (memory(whole, x, size=size) for size in (10, 20))
    assert 8 * 48**2 * 300 * 8 <= second - first < 1.3 * 8 * 48**2 * 300 * 8
    equal = replace(plan, pixels=(48, 1))
    assert memory(equal, x, size=20) - memory(plan, x, size=20) == 64 * 47 * 20**2


def test_memory_of_a_block_counts_what_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a block, the engine's memory includes D and Theta of the pooled images, in addition to a tile's memory."""
    x = np.random.default_rng(0).standard_normal((5, 4, 4, 1))
    plan = planned(mn.Sequential(CONV, mn.AvgPool(2), CONV, mn.ReLU(), POOL), x)
    whole = engine.image_engine(plan, Examples(x), (True, True))
    monkeypatch.setattr(engine, "cores", lambda: 1)
    assert whole.working_memory(Examples(x)) - memory(plan, x, size=whole.size) == 5 * 16 * (2 * 2 + 1)


def test_planes_end_before_a_pooling_that_comes_first() -> None:
    """If planes compute no step, they compute no pooling either, and the field has the grid of the images."""
    plan = planned(mn.Sequential(mn.AvgPool(2), CONV, mn.ReLU(), FLAT), blank(3, 8, 8, 1))
    assert plan.pool is None
    assert plan.field_grid == (8, 8)
    assert plan.pixels == (1, 1)


@pytest.mark.parametrize("end", [FLAT, POOL], ids=repr)
def test_progress_counts_the_tiles(end: mn.spec.Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    """For thirteen images there are three tiles per side, and progress counts six of nine tiles for x with itself."""
    monkeypatch.setattr(engine, "images_per_tile", lambda plan, n: 5)
    x = np.random.default_rng(0).standard_normal((13, 3, 3, 1))
    for others, tiles in ((None, 6), (x[:3], 3)):
        told: list[tuple[int, int]] = []
        an.kernel(network(end)).ntk(x, others, progress=lambda *how, told=told: told.append(how))
        assert told == [(n, tiles) for n in range(1, tiles + 1)]


@pytest.mark.parametrize(("end", "most"), [(FLAT, 128 * 128), (POOL, 16 * 16)], ids=repr)
def test_small_kernels_stay_on_one_thread(end: mn.spec.Layer, most: int) -> None:
    """Kernels of at most 2^20 pairs of pixels use one thread, whereas planes or quadratures use several."""
    one, plan = Examples(blank(1, 8, 8, 1), blank(most, 8, 8, 1)), planned(network(end), blank(1, 8, 8, 1))
    assert engine.is_small(plan, one)
    assert not engine.is_small(plan, Examples(blank(most + 1, 8, 8, 1), blank(1, 8, 8, 1)))
    assert not engine.is_small(replace(plan, by_offsets=3), one)
    assert not engine.is_small(planned(network(end, mn.Tanh()), blank(1, 8, 8, 1)), one)
