"""Test planes in Numba against NumPy on whole kernels. `test_scalar_forms` tests the formulas entry by entry."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import analytic as an
import minintk as mn
from analytic.fast import planes as plan
from analytic.fast.offsets import ADD, Steps
from analytic.images.engine import images_per_tile
from analytic.images.plan import plan_images
from analytic.recursion.requests import Examples
from tests.kit.image_cases import DTYPES, EPS, SPECS, images
from tests.kit.oracles_kernels import image_errors, image_kernels
from tests.kit.plane_laws import DEEP, ENDS, POOLED, law_planes, plane_cases
from tests.kit.thinned import few, thinned

pytest.importorskip("numba")
from analytic.fast import compiled, numba_kernels

Array = np.ndarray[Any, Any]


@contextmanager
def numba(wanted: bool) -> Iterator[list[int]]:
    """Use Numba for kernels of any size if `wanted`, otherwise never, and count the calls to `follow`."""
    asked, plain = [0], numba_kernels.follow

    def follow(*arguments: Any) -> None:
        asked[0] += 1
        plain(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "BYTES_WORTH_NUMBA", 0 if wanted else 2**62)
        patch.setattr(numba_kernels, "follow", follow)
        yield asked


# ------------------------------------------------------------------------------ whole kernels, against NumPy's passes


CHECK = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=few(5), deadline=None)


@CHECK
@given(plane_cases())
def test_planes(case: tuple[mn.Sequential, Array]) -> None:
    law_planes(case, numba)


@pytest.mark.parametrize("end", ENDS)
def test_first_and_last_layers_of_other_kinds(end: str) -> None:
    x, spec = images("float64")[:3], mn.Sequential(*ENDS[end])
    truth = image_kernels(spec, x)
    with numba(True) as asked:
        assert max(image_errors(an.kernel(spec).both(x), truth)) < 1e-9
    assert asked[0] > 0


def test_a_sum_carries_theta_if_its_shortcut_alone_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """If only the shortcut of a sum has weights, convolutions after the sum must still transform Theta.

    The planted error is a `Steps.add` that drops Theta at sums.
    """
    name, right = "a sum whose shortcut alone has weights", Steps.add

    def wrong(self: Steps, kind: int, *numbers: Any, **more: Any) -> None:
        self.live = self.live and kind != ADD
        right(self, kind, *numbers, **more)

    monkeypatch.setattr(Steps, "add", wrong)
    with pytest.raises(AssertionError):
        test_first_and_last_layers_of_other_kinds(name)


def change(number: int, where: Any, value: Any) -> Callable[..., None]:
    """Return a version of `follow` that applies `value` to the entries `where` of argument `number`."""

    def planted(*arguments: Any) -> None:
        changed = list(arguments)
        array = np.array(changed[number])
        array[where] = value(array[where])
        changed[number] = tuple(array.tolist()) if isinstance(arguments[number], tuple) else array
        plain(*changed)

    plain = numba_kernels.follow
    return planted


PLANTED: dict[str, Callable[..., None]] = {
    "the largest offset is left out": change(7, -1, lambda counts: 0 * counts),
    "pixels outside are like those inside": change(3, slice(None), lambda v: np.where(v == 0, 1.0, v)),
    "windows reach one pixel less to the left": change(0, (slice(None), 6), lambda before: np.maximum(before - 1, 0)),
    "Theta without the layer's own": change(1, (slice(None), 0), lambda ratio: 0 * ratio),
    "a pixel's variance is its neighbour's": change(3, (0, 3), lambda half: np.roll(half, 1)),
}


@pytest.mark.parametrize(
    "planted",
    [change(14, 0, lambda into: into + 1), change(14, -1, lambda into: into + 1), change(4, 4, lambda row: 0 * row)],
    ids=["a pixel is in the next window", "one outside is in the first", "all images x are the first"],
)
def test_windows_are_added_up_on_the_way_into_a_field(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((6, 5, 4, 2))
    law_planes((POOLED, x), numba)
    monkeypatch.setattr(numba_kernels, "follow", planted)
    with pytest.raises(AssertionError):
        law_planes((POOLED, x), numba)


@pytest.mark.parametrize("roundings", [8, 0])
def test_equal_images_stay_equal_behind_windows_that_are_added_up(
    roundings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums by planes have larger rounding errors than matrix products, so a D of up to 8 roundings counts as 0."""
    monkeypatch.setattr("analytic.images.fields.ROUNDINGS", roundings)
    x = np.random.default_rng(0).standard_normal((20, 9, 8, 3)).astype(np.float32)
    with numba(True):
        nngp, ntk = an.kernel(POOLED).both(np.concatenate([x, x]))
    assert np.array_equal(np.diagonal(nngp, 20), np.diagonal(nngp)[:20]) == (roundings > 0)
    assert np.allclose(np.diagonal(ntk, 20), np.diagonal(ntk)[:20], rtol=1e-6, atol=0) == (roundings > 0)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = images("float64")[:3]
    law_planes((DEEP, x), numba)
    monkeypatch.setattr(numba_kernels, "follow", PLANTED[name])
    with pytest.raises(AssertionError):
        law_planes((DEEP, x), numba)


@pytest.mark.parametrize(
    ("dtype", "name"), thinned(product(DTYPES, sorted(SPECS.keys() - {"zeros trained", "erf first"})), every=2)
)
def test_kernels_with_planes_are_the_kernels(dtype: str, name: str) -> None:
    """For equal, opposite, close, scaled and black images, planes err by at most 4 times NumPy's error plus 40 eps."""
    (spec, _), x = SPECS[name], images(dtype)
    infinite, truth = an.kernel(spec), image_kernels(spec, x)
    plain = infinite.both(x)
    with numba(True) as asked:
        both = infinite.both(x)
    assert asked[0] > 0
    for found, passes in zip(image_errors(both, truth), image_errors(plain, truth), strict=True):
        assert found <= 4 * passes + 40 * EPS[dtype]


# ------------------------------------------------------------------------------------------------- when it is used


def test_only_large_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """With four ReLU layers, kernels of at least four 16 x 16 images are compiled; with Erf, of at least three.

    In float32, ReLU layers need at least six images. Nothing is compiled without Numba or a closed form, with strides
    or circular padding, or if biases start at zero.
    """

    def large(phi: mn.spec.Layer, images: int, item: int = 8, **how: Any) -> bool:
        net = mn.Sequential(*[mn.Conv2d(8, 3, **how), phi] * 4, mn.GlobalAvgPool(), mn.Dense(1))
        steps = an.kernel(net)._program((16, 16, 3))
        return plan.worth_compiling(steps, (16, 16, 3), images**2 // 2, item)

    assert "analytic.fast.numba_kernels" in sys.modules
    assert large(mn.ReLU(), 4)
    assert large(mn.Erf(), 3)
    assert not large(mn.Erf(), 2)
    assert not large(mn.ReLU(), 3)
    assert not large(mn.ReLU(), 5, 4)
    assert large(mn.ReLU(), 6, 4)
    assert not large(mn.Tanh(), 100)
    assert not large(mn.ReLU(), 100, stride=2)
    assert not large(mn.ReLU(), 100, padding="circular")
    assert not large(mn.ReLU(), 100, b_std=0.1, b_init="zeros")
    monkeypatch.setattr(plan, "numba_works", lambda: False)
    assert not large(mn.ReLU(), 16)


def test_pairs_with_other_images_all_count() -> None:
    """Three images with three other images give nine pairs, which are enough for planes.

    Three images with themselves count as four pairs, which are too few.
    """
    net = mn.Sequential(*[mn.Conv2d(8, 3), mn.ReLU()] * 4, mn.GlobalAvgPool(), mn.Dense(1))
    steps, x = an.kernel(net)._program((16, 16, 3)), np.ones((3, 16, 16, 3))
    assert plan_images(steps, Examples(x, x.copy())).by_offsets == 8
    assert plan_images(steps, Examples(x)).by_offsets == 0


def test_tiles_by_planes_hold_more_images() -> None:
    """Planes take an eighth of the time of fields, so tiles that take equal time contain eight times as many pairs."""
    net = mn.Sequential(
        *[mn.Conv2d(8, 3), mn.ReLU()] * 3, mn.AvgPool(2), mn.Conv2d(8, 3), mn.ReLU(), mn.GlobalAvgPool()
    )
    found = plan_images(an.kernel(net)._program((8, 8, 1)), Examples(np.ones((99, 8, 8, 1))))
    planes, fields = (images_per_tile(one, 99) for one in (found, replace(found, by_offsets=0)))
    assert 2.5 < planes / fields < 3.2


def test_numba_may_be_missing_or_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Numba, `numba_works` returns False without a warning.

    If Numba fails to load, for example with an unsupported NumPy, the function warns and returns False.
    """
    works = plan.numba_works.__wrapped__
    assert works()
    monkeypatch.setitem(sys.modules, "analytic.fast.numba_kernels", None)
    with pytest.warns(RuntimeWarning, match="does not load"):
        assert not works()
    monkeypatch.setattr("minintk.fast.numba_here.numba_is_here", lambda: False)
    assert not works()


def test_without_a_place_for_its_files_it_compiles_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba compiles without a cache if no folder is writable."""
    plain = sys.modules["numba"].njit

    def refuses(*, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return plain(**options)

    monkeypatch.setattr(compiled, "njit", refuses)
    assert compiled.compiled(lambda x: x + 1)(2) == 3
