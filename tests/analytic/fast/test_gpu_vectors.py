"""Test the CUDA source for pairs of vectors, compiled as C++, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import minintk as mn
from analytic.vectors import plan
from tests.analytic.recursion import test_closed_forms as closed_forms
from tests.analytic.recursion import test_range_checks as scales
from tests.analytic.recursion import test_unit_rows as degenerate
from tests.kit.compiled import COMPILER, use_pairs
from tests.kit.row_laws import CLOSED, ROUNDINGS, TWO_PARTS, apart, between, inputs, law_of_passes, network
from tests.kit.thinned import thinned

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")

test_shallow = degenerate.test_shallow
test_deep_and_near = degenerate.test_deep_and_near
test_one_image = degenerate.test_one_image_at_many_brightnesses
test_a_row_of_zeros = degenerate.test_a_row_of_zeros_beside_others
test_every_scale = scales.test_every_scale
test_degenerate_closed_forms = closed_forms.test_degenerate_rows


@pytest.fixture(autouse=True)
def _by_blocks_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile kernels of any number of rows, also in the tests imported above."""
    monkeypatch.setattr(plan, "ROWS_WORTH_COMPILED", 0)
    use_pairs(monkeypatch)


CASES = list(product(CLOSED, ("one", "many", "zeros"), ("float32", "float64")))


@pytest.mark.parametrize(("phi", "norms", "dtype"), thinned(CASES, every=5))
def test_a_launch_is_what_numpy_does(phi: Any, norms: str, dtype: str) -> None:
    law_of_passes(phi, norms, dtype)


@pytest.mark.parametrize("layer", TWO_PARTS, ids=lambda layer: type(layer).__name__)
def test_layers_of_two_parts(layer: Any) -> None:
    for norms, dtype in (("many", "float64"), ("zeros", "float32")):
        assert apart(between(layer), *inputs(norms, dtype)) < ROUNDINGS


@pytest.mark.parametrize("shape", [(1, 1), (1, 16), (17, 1), (33, 15), (241, 239)])
def test_every_shape_of_a_tile(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, 5)) for n in shape)
    assert apart(network(mn.ReLU()), x, y) < ROUNDINGS
    assert apart(network(mn.Erf()), x) < ROUNDINGS


def replaced(old: str, new: str) -> Callable[[str], str]:
    """Return an edit that replaces `old` by `new`. The edit fails if the source lacks `old`."""

    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return edit


PLANTED = {
    "the right row's numbers are the left's": replaced("stride + j + column;", "stride + i + line;"),
    "a row has its neighbour's numbers": replaced("stride + i + line;", "stride + i + line + (line == 0);"),
    "the numbers are those of the step before": replaced("step[1] *", "(step[1] > 0) * (step[1] - 1) *"),
    "constants are those of the first step": replaced("factors + 8 * s", "factors"),
    "Theta is not 0 at the start": replaced("TANGENT && !begin ?", "TANGENT ?"),
    "the last step is left out": replaced("s < count", "s < count - 1"),
    "the last column is left out": replaced("column >= m", "column >= m - 1"),
    "lines beyond the grid are left out": replaced("line += gridDim.y", "line += n"),
}
"""{error: edit}. The last edit has an effect only on tiles with more lines than blocks."""


@pytest.fixture
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from analytic.fast import gpu_vectors

    monkeypatch.setattr(gpu_vectors, "LINES", 7)


@pytest.mark.parametrize("edit", [lambda text: text, *PLANTED.values()], ids=["none", *PLANTED])
def test_a_wrong_source_is_found_out(
    edit: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, few_blocks: None
) -> None:
    """Negative controls: the check fails on each planted error and passes on the unedited source."""
    use_pairs(monkeypatch, edit)
    worst = apart(network(mn.LeakyReLU(0.3)), *inputs("many", "float64"))
    assert (worst < ROUNDINGS) == (edit not in PLANTED.values())
