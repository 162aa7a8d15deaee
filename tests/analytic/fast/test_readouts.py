"""Compare read-outs by weighted sums of planes with poolings of whole fields, which contain all pairs of pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.fast import offsets, planes
from analytic.fast.offsets import sums_suffice
from analytic.fast.readouts import Readout
from analytic.images import plan
from analytic.images.steps import PoolCoefficients

pytest.importorskip("numba")

Array = np.ndarray[Any, Any]


@contextmanager
def by_fields() -> Iterator[None]:
    """Compute kernels without planes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "planes", lambda: None)
        yield


@pytest.fixture(autouse=True)
def numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use planes for kernels of any size."""
    monkeypatch.setattr(planes, "BYTES_WORTH_NUMBA", 0)


def drawn(rng: np.random.Generator) -> tuple[mn.Sequential, Array]:
    """Draw a spec with local poolings at its end, and four images."""

    def pick(*of: Any) -> Any:
        return of[rng.integers(len(of))]

    def pool(size: int, **how: Any) -> mn.spec.Layer:
        return mn.AvgPool(size, stride=pick(1, 1, 2, 3), **how)

    trunk: list[mn.spec.Layer] = []
    for _ in range(pick(1, 2, 3)):
        trunk += [mn.Conv2d(4, 3, w_std=1.4, b_std=pick(0.0, 0.3)), pick(mn.ReLU(), mn.Abs(), mn.Erf(), mn.GELU())]
    flat: list[mn.spec.Layer] = [mn.Flatten(), mn.Dense(3, b_std=0.1), mn.ReLU()]
    ends: list[list[mn.spec.Layer]] = [
        [pool(pick(1, 2, 3, 4)), *flat],
        [pool(pick(2, 3, 5), padding=pick("same", "circular"), normalize_edges=pick(False, True)), *flat],
        [pool(pick(1, 2)), pool(pick(1, 2)), *flat],
        [pool(pick(1, 2, 3)), mn.GlobalAvgPool()],
        [pool(3, padding="circular"), mn.GlobalAvgPool()],
    ]
    x = rng.standard_normal((4, pick(6, 7, 9), pick(7, 8), 2)) + 0.2
    x[3] = pick(x[0], -x[0], 0 * x[0], (1 + 1e-9) * x[0])
    return mn.Sequential(*trunk, *pick(*ends), mn.Dense(1)), x


def distance(spec: mn.Sequential, x: Array) -> float:
    """Return the largest difference in K or Theta with and without planes, relative to the largest entry.

    The kernels are those of x with x, and of x[:2] with x[1:].
    """
    kernel = an.kernel(spec)
    found = [*kernel.both(x), *kernel.both(x[:2], x[1:])]
    with by_fields():
        want = [*kernel.both(x), *kernel.both(x[:2], x[1:])]
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found, want, strict=True))


def law(specs: int, seed: int) -> float:
    """Return the largest distance over `specs` random specs, and check that weighted sums suffice for each."""
    rng, worst = np.random.default_rng(seed), 0.0
    for _ in range(specs):
        spec, x = drawn(rng)
        assert sums_suffice(an.kernel(spec)._program(x.shape[1:]), x.shape[1:3]) is not None
        worst = max(worst, distance(spec, x))
    return worst


@pytest.mark.parametrize("specs", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_read_outs_are_fields_that_are_pooled(specs: int) -> None:
    assert law(specs, specs) < 1e-11  # the distance is 4e-13 for Theta of images that differ by 1e-9, otherwise 1e-14


CONV = mn.Conv2d(4, 3, w_std=1.4, b_std=0.3)
LOCAL = mn.Sequential(CONV, mn.ReLU(), mn.AvgPool(3, stride=1, padding="same"), mn.Flatten(), mn.Dense(1))
TWICE = mn.Sequential(
    *(CONV, mn.Erf(), mn.AvgPool(2, stride=1), mn.AvgPool(2, stride=2)),
    *(mn.Flatten(), mn.Dense(4), mn.ReLU(), mn.Dense(1)),
)


def wrong_weights(change: Callable[[Array, Array, float], Any]) -> Any:
    """Return a replacement for the property `Readout.weights` that applies `change` to the correct value."""
    right = vars(Readout)["weights"].func
    return property(lambda self: change(*right(self)))


def plain_mean(self: Readout, number: int, row: PoolCoefficients, layout: Any) -> PoolCoefficients:
    """Average the images' own terms in `row`, which a pooling subtracts, with equal weights for all pixels."""
    own = row.own.right.reshape((-1, *row.grid)).mean(axis=(1, 2), keepdims=True)
    return row._replace(own=layout.spread(own), share=None, mean=None, grid=(1, 1))


PLANTED: dict[str, tuple[Any, str, Any]] = {
    "all pairs in reach count alike": (
        Readout, "weights", wrong_weights(lambda a, b, unit: ((a > 0) * 1.0, (b > 0) * 1.0, unit))
    ),
    "the mean over windows is a sum": (Readout, "weights", wrong_weights(lambda a, b, unit: (a, b, 9 * unit))),
    "columns count as rows do": (Readout, "weights", wrong_weights(lambda a, b, unit: (a, a[:5, :5], unit))),
    "one offset too few": (
        offsets, "offsets_of", lambda weights, right=offsets.offsets_of: right(weights)[:-1] or [0]
    ),
    "a pooling subtracts a plain mean": (Readout, "averaged", plain_mean),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((3, 6, 5, 2))
    assert max(distance(spec, x) for spec in (LOCAL, TWICE)) < 1e-13
    monkeypatch.setattr(*PLANTED[name])
    assert max(distance(spec, x) for spec in (LOCAL, TWICE)) > 1e-3


def test_planes_out_of_reach_are_left_out() -> None:
    """Windows of 3 pixels need 5 offsets per axis. Windows of one pixel, 4 pixels apart, need every fourth offset."""

    def used(*end: mn.spec.Layer) -> list[list[int]]:
        steps = an.kernel(mn.Sequential(CONV, mn.ReLU(), *end, mn.Dense(1)))._program((12, 12, 2))
        found = sums_suffice(steps, (12, 12))
        assert found is not None
        return [offsets.offsets_of(one) for one in found.weights[:2]]

    assert used(mn.AvgPool(3, stride=1), mn.Flatten()) == [[-2, -1, 0, 1, 2]] * 2
    assert used(mn.AvgPool(1, stride=4), mn.GlobalAvgPool()) == [[-8, -4, 0, 4, 8]] * 2
    assert used(mn.Flatten()) == [[0]] * 2


@pytest.mark.parametrize(
    "end",
    [
        (mn.AvgPool(2), CONV, mn.ReLU(), mn.GlobalAvgPool()),
        (mn.AvgPool(2), mn.Conv2d(4, 1), mn.Erf(), mn.Flatten()),
        (mn.AvgPool(3, stride=1, padding="same"), mn.GlobalAvgPool()),
    ],
    ids=["a convolution behind", "an activation behind", "shares of unequal pixels"],
)
def test_what_needs_a_field_has_no_weights(end: tuple[mn.spec.Layer, ...]) -> None:
    spec = mn.Sequential(CONV, mn.ReLU(), *end, mn.Dense(1))
    assert sums_suffice(an.kernel(spec)._program((8, 8, 2)), (8, 8)) is None
    assert distance(spec, np.random.default_rng(0).standard_normal((3, 8, 8, 2))) < 1e-12
