"""Test planes in Numba on images of every scale, on degenerate images, and at the ends of the float range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.fast import offsets
from analytic.fast import planes as plan
from analytic.fast.gpu_kernels import block_bytes, threads_for
from analytic.images import engine
from analytic.images.plan import plan_images
from analytic.recursion.requests import Examples
from tests.analytic.images import test_engine as degenerate
from tests.analytic.images import test_pixel_pairs as pixels
from tests.analytic.images import test_precision as scales
from tests.analytic.images import test_steps as steps
from tests.analytic.images.test_memory import taken

pytest.importorskip("numba")

test_every_scale = scales.test_equal_opposite_and_black_images_at_every_scale
test_bright_next_to_dim = scales.test_bright_next_to_dim_images
test_end_of_the_range = scales.test_kernels_at_the_end_of_the_range_are_right_or_refused
test_equal_and_opposite = degenerate.test_degenerate_images
test_opposite_windows = degenerate.test_opposite_windows_keep_their_digits
test_opposite_of_any_size = degenerate.test_opposite_images_of_any_size
test_black = degenerate.test_black_images_without_bias_have_kernels_of_zero
test_black_in_float32 = degenerate.test_black_images_in_float32
test_black_next_to_bright = degenerate.test_float32_of_a_black_image_next_to_bright_ones
test_no_variance = scales.test_images_of_no_variance_have_kernels_of_exact_zeros
test_any_size = scales.test_float32_of_images_of_any_size
test_one_row_and_one_column = degenerate.test_windows_of_one_row_and_of_one_column
test_sequences = degenerate.test_sequences_are_images_of_one_row
test_pixels = pixels.test_every_pair_of_pixels_is_right
test_frozen = steps.test_frozen_weights_have_no_theta


@pytest.fixture(scope="module", autouse=True)
def numba() -> Iterator[None]:
    """Use Numba for kernels of any size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "BYTES_WORTH_NUMBA", 0)
        yield


# ------------------------------------------------------------------------------ what a block of a GPU contains


def least_memory(program: Any, shape: tuple[int, ...], item: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Find by bisection the smallest block memory that is reported to hold the planes."""
    low, high = 0, 2**30
    while high - low > 1:
        middle = (low + high) // 2
        monkeypatch.setattr(plan, "block_memory", lambda xp, memory=middle: memory)
        low, high = (low, middle) if plan.fits_a_block(np, program, shape, item) else (middle, high)
    return high


@pytest.mark.parametrize("kernel", [(1, 1), (5, 1), (1, 5), (9, 3)], ids=repr)
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_planes_that_are_said_to_fit_a_block_do(
    kernel: tuple[int, int], depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least memory that is reported to suffice is one to three times the memory that a block needs.

    A block needs memory for lines, margins, and the slots of nested sums.
    """
    conv, shape = mn.Conv2d(4, kernel), (6, 9, 2)
    body: mn.spec.Layer = mn.ReLU()
    for _ in range(depth):
        body = mn.Residual(mn.Sequential(mn.ReLU(), conv, body, conv))
    k, found = an.kernel(mn.Sequential(conv, body, mn.Flatten())), list[offsets.Planes]()
    right = offsets.Planes.follow

    def follow(self: offsets.Planes, *how: Any) -> None:
        found.append(self)
        right(self, *how)

    monkeypatch.setattr(offsets.Planes, "follow", follow)
    k.ntk(np.ones((1, *shape)))
    rows, columns = found[0].reach
    size = (6 + sum(rows)) * (9 + sum(columns))
    for item in (4, 8):
        taken = block_bytes(size, found[0].steps.slots, threads_for(size), item)
        assert taken <= least_memory(k._program(shape), shape, item, monkeypatch) <= 3 * taken


# ------------------------------------------------------------------------------ the memory of a call

POOL, FLAT = (mn.GlobalAvgPool(), mn.Dense(1)), (mn.Flatten(), mn.Dense(1))


def network(kernel: int, phi: mn.spec.Layer, depth: int, *end: mn.spec.Layer) -> mn.Sequential:
    return mn.Sequential(*[layer for _ in range(depth) for layer in (mn.Conv2d(4, kernel), phi)], *end)


CASES: dict[str, tuple[mn.Sequential, tuple[int, ...]]] = {
    "many channels": (network(3, mn.ReLU(), 1, *FLAT), (128, 8, 8, 50)),
    "many layers": (network(3, mn.GELU(), 24, *FLAT), (1, 6, 6, 1)),
    "a long sequence": (network(3, mn.ReLU(), 1, *POOL), (1, 1, 200, 1)),
    "a high image": (network(3, mn.ReLU(), 1, *POOL), (1, 200, 1, 1)),
    "large windows": (network(11, mn.Erf(), 2, *FLAT), (32, 6, 6, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_call_takes_what_it_is_said_to(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call uses at least a tenth of the memory bound, and at most all of it.

    A bound that omitted the images, or the planes of each core, would be exceeded (see the next test).
    """
    monkeypatch.setattr(plan, "cores", lambda: 1)
    assert 0.1 < taken(*CASES[name], "float32" if name == "many channels" else "float64") <= 1


@pytest.mark.parametrize(("name", "most"), [("many channels", "images"), ("many layers", "cores")])
def test_a_bound_that_forgets_something_is_exceeded(name: str, most: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_of = plan.bytes_of
    monkeypatch.setattr(plan, "cores", lambda: int(most != "cores"))
    if most == "images":
        monkeypatch.setattr(plan, "bytes_of", lambda plan, inputs, images: bytes_of(plan, inputs, 0))
    assert taken(*CASES[name]) > 1


WIDE = (mn.Conv2d(4, (5, 4)), mn.GELU(), mn.Conv2d(4, (1, 7)), mn.ReLU(), mn.AvgPool(2), mn.Conv2d(4, 9), *POOL)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(13, 40, 2), (30, 4, 9)], ids=repr)
def test_each_term_of_a_bound_is_what_is_taken(
    shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare the sizes of the arrays per core, per image, and per image and core with the terms of the bound."""
    k, x, found = an.kernel(mn.Sequential(*WIDE)), np.ones((3, *shape), dtype), list[tuple[int, ...]]()
    follow, item = offsets.Planes.follow, np.dtype(dtype).itemsize

    def noted(self: offsets.Planes, images: Any, at: int, total: Any, *more: Any) -> None:
        assert self.reach == ((2, 2), (3, 3))
        sizes, space = list[int](), self.workspace

        def take(shape: tuple[int, ...]) -> Any:
            sizes.append(prod(shape))
            return space.take(shape)

        lent: Any = SimpleNamespace(take=take, give=space.give, dtype=space.dtype)
        follow(replace(self, workspace=lent), images, at, total, *more)
        found.append((item * sum(sizes), self.laid_out[0].nbytes, total.nbytes // total.shape[1]))

    monkeypatch.setattr(offsets.Planes, "follow", noted)
    k.ntk(x)
    planned, bounds = plan_images(k._program(shape), Examples(x)), list[int]()
    for cores, images in ((0, 0), (1, 0), (0, 1), (1, 1), (3, 5)):
        monkeypatch.setattr(plan, "cores", lambda count=cores: count)
        bounds.append(plan.bytes_of(planned, Examples(x), images))
    none, core, image, both, more = bounds
    terms = core - none, image - none, both - core - image + none
    for bound, least, most in zip(terms, map(max, zip(*found, strict=True)), (4, 9, 1.5), strict=True):
        assert least <= bound < most * least
    assert more - none == 3 * terms[0] + 5 * terms[1] + 15 * terms[2]
    assert none == 2**21 + 64 * ((shape[0] + 5) ** 2 + (shape[1] + 7) ** 2)  # eight arrays of weights


def test_a_tile_of_planes_prepares_the_images_of_both_sides() -> None:
    x = np.ones((9, 8, 8, 2))
    planned = plan_images(an.kernel(network(3, mn.ReLU(), 2, *FLAT))._program((8, 8, 2)), Examples(x))
    small, large = (engine.working_memory(planned, Examples(x), size) for size in (2, 7))
    few, many = (plan.bytes_of(planned, Examples(x), images) for images in (4, 14))
    assert (small, large) == (few, many)
