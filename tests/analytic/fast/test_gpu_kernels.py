"""Test the CUDA source for planes, compiled as C++. Threads run one after another, up to each barrier in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import analytic as an
import minintk as mn
from analytic.fast import offsets
from analytic.fast import planes as plan
from analytic.fast.gpu_kernels import source
from minintk import threads
from minintk.arrays import block_memory, raw_kernel
from tests.kit.compiled import COMPILER, use_blocks
from tests.kit.image_cases import DTYPES, EPS, SPECS, images
from tests.kit.oracles_kernels import image_errors, image_kernels
from tests.kit.plane_laws import DEEP, ENDS, KINKED, By, law_planes, plane_cases
from tests.kit.thinned import thinned

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")


def by(edit: Callable[[str], str]) -> By:
    """Return a context manager. If its argument is true, planes run the edited source, and launches are counted."""

    @contextmanager
    def context(wanted: bool) -> Iterator[list[int]]:
        asked = [0]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threads, "cores", lambda: 1)  # on more cores, blocks would share the program's memory
            patch.setattr(plan, "worth_compiling", lambda *_, **how: False)
            if wanted:
                use_blocks(patch, edit)
                plain = offsets.Planes.launch

                def launch(*arguments: Any) -> Any:
                    asked[0] += 1
                    return plain(*arguments)

                patch.setattr(offsets.Planes, "launch", launch)
            yield asked

    return context


as_it_is = by(lambda text: text)


def test_numpy_compiles_nothing() -> None:
    assert raw_kernel(np, "nothing", "") is None
    assert block_memory(np) == 0


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=4, deadline=None)
@given(plane_cases(KINKED))
def test_planes(case: tuple[mn.Sequential, Array]) -> None:
    law_planes(case, as_it_is)


@pytest.mark.parametrize("end", ENDS)
def test_first_and_last_layers_of_other_kinds(end: str) -> None:
    x, spec = images("float64")[:3], mn.Sequential(*ENDS[end])
    with as_it_is(True) as asked:
        both = an.kernel(spec).both(x)
    assert max(image_errors(both, image_kernels(spec, x))) < 1e-9
    assert asked[0] > 0


NAMES = "relu", "abs, residual", "erf", "erf, diagonal", "gaussian"


@pytest.mark.parametrize(("dtype", "name"), thinned(product(DTYPES, NAMES), every=2))
def test_kernels_by_blocks_are_the_kernels(dtype: str, name: str) -> None:
    """The error of kernels computed by blocks of GPU threads is at most 4 times that of NumPy's kernels plus 200 eps.

    The images include equal, opposite, nearly equal and black ones, and ones whose scales differ by a factor of 1e4.
    At this factor, an error of about 1e4 eps is expected for a pair of pixels, and a smaller one for means over pixels.
    """
    (spec, _), x = SPECS[name], images(dtype)
    infinite, truth = an.kernel(spec), image_kernels(spec, x)
    plain = infinite.both(x)
    with as_it_is(True):
        both = infinite.both(x)
    for found, passes in zip(image_errors(both, truth), image_errors(plain, truth), strict=True):
        assert found <= 4 * passes + 200 * EPS[dtype]


def replaced(old: str, new: str, count: int = 1) -> Callable[[str], str]:
    """Return an edit that replaces the first `count` occurrences of `old` by `new`."""
    return lambda text: text.replace(old, new, count)


BARRIER, HALF = "__syncthreads();", "if (threadIdx.x < half)"
POOLED = mn.Sequential(*DEEP.layers[:2], mn.AvgPool((1, 2), padding="same"), *DEEP.layers)
LOCAL = mn.Sequential(*DEEP.layers[:2], mn.AvgPool((2, 3), stride=1, padding="same"), mn.Flatten(), mn.Dense(1))
PLANTED: dict[str, tuple[Callable[[str], str], mn.Sequential]] = {
    "an offset's range is off by one": (replaced("lines = H - abs(dy)", "lines = H - abs(dy) - 1"), DEEP),
    "offsets are of the next place": (replaced("dx = offsets[blockIdx.y]", "dx = 1 + offsets[blockIdx.y]"), DEEP),
    "pixels outside are like those inside": (replaced("values[x + at] + values[x2 + at]", "values[x + at]"), DEEP),
    "no barrier before the first step": (replaced(BARRIER, ""), DEEP),
    "no barrier between the two sums": (replaced(f"            {BARRIER}\n            EACH", "            EACH"), DEEP),
    "no barrier after a step": (
        replaced(f"        {BARRIER}\n    }}\n\n    const int store", "    }\n\n    const int store"),
        DEEP,
    ),
    "a pair has its neighbour's number in a field": (
        replaced("field[at] = work[m]", "field[at] = work[m + 1]"),
        POOLED,
    ),
    "all lines count alike": (replaced("across[line] * ", ""), LOCAL),
    "pairs count as their pixels do": (replaced("along[x * w + x + dx]", "along[x * w + x]"), LOCAL),
    "not all threads come to a barrier": (
        replaced(f"{BARRIER}\n        {HALF}", f"{HALF} {BARRIER}\n        {HALF}"),
        DEEP,
    ),
}
"""{error: (edit, network whose kernel reveals it)}."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_is_found_out(name: str) -> None:
    x, text = images("float64")[:3], source("float64", (("kinked", 2, 5),), tangent=True)
    edit, network = PLANTED[name]
    assert edit(text) != text
    with pytest.raises(AssertionError):
        law_planes((network, x), by(edit))


@pytest.mark.parametrize(("memory", "fit"), [(0, ()), (3000, ()), (4500, (4,)), (10**6, (4, 8))])
def test_planes_that_a_block_cannot_hold_stay_fields(
    memory: int, fit: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check for which precisions (4 or 8 bytes per number) the planes fit into the memory of a block.

    For 4 x 5 pixels and windows of 3 x 3, a plane takes up 10 x 11 numbers. A block stores planes for one slot and for
    window sums, and the totals of 128 threads.
    """
    monkeypatch.setattr(plan, "block_memory", lambda xp: memory)
    program = an.kernel(DEEP)._program((4, 5, 2))
    assert tuple(item for item in (4, 8) if plan.fits_a_block(np, program, (4, 5, 2), item)) == fit


@pytest.mark.slow  # compiles planes that no other test needs
def test_the_selves_are_fields_where_their_planes_fit_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planes for an image with itself (float64) are twice as large as those for pairs of images (float32).

    If only the planes for pairs fit into a block, the kernel changes only by rounding errors.
    """
    pytest.importorskip("numba", reason="needs the extra fast")
    monkeypatch.setattr(plan, "BYTES_WORTH_NUMBA", 0)
    x = np.random.default_rng(0).standard_normal((6, 4, 5, 2)).astype(np.float32)
    taken, items = plan.steps_taken, list[int]()
    want = an.kernel(POOLED).both(x)

    def narrow(program: Any, shape: Any, layout: Any, pairs: int) -> int:
        items.append(layout.number)
        return taken(program, shape, layout, pairs) if layout.number == 4 else 0

    monkeypatch.setattr(plan, "steps_taken", narrow)
    for found, right in zip(an.kernel(POOLED).both(x), want, strict=True):
        np.testing.assert_allclose(found, right, rtol=3e-6)
    assert {4, 8} <= set(items)
