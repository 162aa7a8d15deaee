"""Test the memory of image kernels: the estimate, the measured peak, and the reuse of arrays within a thread."""

from __future__ import annotations

import tracemalloc
from math import prod
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.images import engine, pixel_pairs
from analytic.images.memory import Workspace, rounded
from analytic.images.pixel_pairs import Square
from analytic.images.plan import plan_images
from analytic.recursion.requests import Examples
from minintk.threads import alone
from tests.kit.counting import counted

Array = np.ndarray[Any, Any]

POOL, FLAT = (mn.GlobalAvgPool(), mn.Dense(1)), (mn.Flatten(), mn.Dense(1))
BACK = mn.Conv2d(4, 3, b_std=0.2)


def network(phi: mn.spec.Layer, depth: int, *end: mn.spec.Layer) -> mn.Sequential:
    return mn.Sequential(*[layer for _ in range(depth) for layer in (BACK, phi)], *end)


def images(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape)


# ------------------------------------------------------------------------------ the memory of a call

NESTED = mn.Residual(mn.Sequential(mn.ReLU(), BACK, mn.Residual(mn.Sequential(mn.ReLU(), BACK))))
CASES: dict[str, tuple[mn.Sequential, tuple[int, ...]]] = {
    "all pairs of pixels": (network(mn.ReLU(), 2, *POOL), (2, 22, 22, 1)),
    "sums in sums": (mn.Sequential(BACK, NESTED, mn.ReLU(), *POOL), (2, 20, 20, 4)),
    "short sequences": (
        mn.Sequential(mn.Conv1d(4, 1), mn.ReLU(), mn.GlobalSelfAttention(4), mn.ReLU(), *POOL),
        (32, 16, 3),
    ),
    "many channels": (network(mn.ReLU(), 1, *FLAT), (64, 4, 4, 300)),
    "many layers": (network(mn.GELU(), 12, *POOL), (64, 2, 2, 1)),
    "of equal pixels": (network(mn.ReLU(), 4, *FLAT), (160, 4, 4, 1)),
    "a quadrature": (network(mn.Tanh(), 1, *FLAT), (32, 4, 4, 1)),
}


def taken(spec: mn.Sequential, shape: tuple[int, ...], dtype: str = "float64", pixels: int = 1) -> float:
    """Return the peak memory of a warm call on one core, without the results, relative to the bound.

    pixels : number of pixels per image in the results.
    """
    kernel, x = an.kernel(spec), images(*shape).astype(dtype)
    inputs, call = Examples(x), kernel.both if pixels == 1 else kernel.pixels
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "cores", lambda: 1)
        bound = engine.working_memory(plan_images(kernel._program(shape[1:]), inputs, pixels=(1, pixels)), inputs)
    alone(call, x[:2])
    tracemalloc.start()
    both = alone(call, x)
    peak = tracemalloc.get_traced_memory()[1] - sum(np.asarray(k).nbytes for k in both)
    tracemalloc.stop()
    return peak / bound


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_a_call_takes_what_it_is_said_to(name: str, dtype: str) -> None:
    least = 0.1 if dtype == "float64" else 0.05  # each image with itself is computed in float64
    assert least < taken(*CASES[name], dtype) <= 1


@pytest.mark.parametrize(
    ("spec", "shape", "pixels"),
    [
        (mn.Sequential(BACK, mn.ReLU(), BACK), (8, 12, 12, 1), 144),
        (network(mn.ReLU(), 1, *POOL), (1, 34, 34, 1), 1),
    ],
    ids=["results of pixels", "a field"],
)
def test_large_arrays_take_most_of_what_is_said(spec: mn.Sequential, shape: tuple[int, ...], pixels: int) -> None:
    assert 0.5 < taken(spec, shape, pixels=pixels) <= 1


@pytest.mark.parametrize(
    ("term", "name"), [("field_bytes", "all pairs of pixels"), ("prepared_bytes", "many channels")]
)
def test_a_bound_that_forgets_something_is_exceeded(term: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, term, lambda *plan: 0)
    assert taken(*CASES[name]) > 1


# ------------------------------------------------------------------------------ arrays that are used again

PLACES: dict[str, tuple[mn.spec.Layer, ...]] = {
    "windows": (BACK, mn.ReLU(), mn.Conv2d(4, (3, 1), stride=2), mn.Erf(), mn.Conv2d(4, (1, 3)), *POOL),
    "equal pixels": (BACK, mn.ReLU(), mn.Conv2d(4, (3, 1)), mn.Erf(), mn.Conv2d(4, 2, stride=2), *FLAT),
    "sums": (BACK, NESTED, mn.ReLU(), *POOL),
    "pooling": (BACK, mn.Abs(), mn.AvgPool(2, padding="same"), BACK, mn.ReLU(), *POOL),
    "products": (BACK, mn.GlobalSelfAttention(4, scaling="sqrt", zeta=mn.Identity()), mn.ReLU(), *POOL),
    "attention": (BACK, mn.LayerNorm(), mn.GlobalSelfAttention(4), mn.ReLU(), *POOL),
}


def made(spec: mn.Sequential, n: int) -> int:
    """Count the arrays that kernels of n images allocate on one thread."""
    kernel, x = an.kernel(spec), images(n, 4, 5, 2)
    with counted(Workspace, "new") as arrays:
        alone(kernel.both, x)
        alone(kernel.nngp, x[:2], x)
    return len(arrays)


@pytest.mark.parametrize("name", PLACES)
def test_what_is_taken_is_given_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair of images reuses the arrays of the previous pair. If fields are not released, the check fails."""
    monkeypatch.setattr(engine, "BYTES_PER_PIECE", 1)
    monkeypatch.setattr(pixel_pairs, "BYTES_PER_PIECE", 2000)
    spec = mn.Sequential(*PLACES[name])
    assert made(spec, 7) == made(spec, 3)
    monkeypatch.setattr(Square, "release", lambda field: None)
    monkeypatch.setattr(pixel_pairs.Diagonal, "release", lambda field: None)
    assert made(spec, 7) > made(spec, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_workspace_hands_out_what_is_free(dtype: Any) -> None:
    """A workspace returns the smallest free array that fits. Every array starts on a cache line.

    If none fits, a new array replaces the largest free one.
    """
    space, shapes = Workspace(np, dtype), [(3, 5), (40,), (7, 2, 2)]
    first: list[Any] = [space.take(shape) for shape in shapes]
    for a, shape in zip(first, shapes, strict=True):
        assert (a.shape, a.dtype, a.ctypes.data % 64, a.flags.c_contiguous) == (shape, dtype, 0, True)
        a[...] = np.arange(prod(shape)).reshape(shape)
    assert all(np.array_equal(a.reshape(-1), np.arange(a.size)) for a in first)  # none overlaps another
    space.give(*first)
    assert np.shares_memory(space.take((2, 7)), first[0])
    assert np.shares_memory(space.take((15,)), first[2])
    large = space.take((50,))
    assert not any(np.shares_memory(large, a) for a in first)
    assert not space.free
    space.give(large)
    assert [one.size for one in space.free] == [50]


def test_numbers_are_rounded_up() -> None:
    for n in range(40):
        for step in (1, 7, 16):
            assert 0 <= rounded(n, step) - n < step
            assert rounded(n, step) % step == 0
