"""Compare compiled passes over tiles with NumPy up to rounding, and check that closed forms are compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minintk as mn
from analytic.vectors import plan
from tests.analytic.recursion import test_closed_forms as closed_forms
from tests.analytic.recursion import test_range_checks as scales
from tests.analytic.recursion import test_unit_rows as degenerate
from tests.kit.row_laws import CLOSED, ROUNDINGS, TWO_PARTS, apart, between, inputs, law_of_passes, network

pytest.importorskip("analytic.fast.vectors", reason="needs the extra fast")

test_shallow = degenerate.test_shallow
test_deep = degenerate.test_deep
test_deep_and_near = degenerate.test_deep_and_near
test_steep = degenerate.test_erf_is_so_steep_that_angles_of_any_size_count
test_mixed = degenerate.test_mixed_activations_of_tiny_rows
test_one_image = degenerate.test_one_image_at_many_brightnesses
test_zero_biases = degenerate.test_zero_initialised_biases
test_a_row_of_zeros = degenerate.test_a_row_of_zeros_beside_others
test_every_scale = scales.test_every_scale
test_float32_to_its_ends = scales.test_float32_to_its_ends
test_degenerate_closed_forms = closed_forms.test_degenerate_rows


@pytest.fixture(autouse=True)
def _however_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile kernels of any number of rows, also in the tests imported above."""
    monkeypatch.setattr(plan, "ROWS_WORTH_COMPILED", 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norms", ["one", "many", "zeros"])
@pytest.mark.parametrize("phi", CLOSED, ids=repr)
def test_a_pass_is_what_numpy_does(phi: Any, norms: str, dtype: str) -> None:
    law_of_passes(phi, norms, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layer", TWO_PARTS, ids=lambda layer: type(layer).__name__)
def test_layers_of_two_parts(layer: Any, dtype: str) -> None:
    """For layers whose two compiled parts are combined by NumPy, kernels equal those that NumPy computes."""
    kernel = between(layer)
    for norms in ("many", "zeros"):
        assert apart(kernel, *inputs(norms, dtype)) < ROUNDINGS


def test_one_kernel_alone_is_that_of_both() -> None:
    x, y = inputs("many", "float64")
    for phi in (mn.ReLU(), mn.GELU()):
        kernel = network(phi)
        assert np.array_equal(kernel.nngp(x, y), kernel.both(x, y).nngp)


@pytest.mark.parametrize("shape", [(1, 1), (1, 16), (17, 1), (33, 15), (241, 239), (500, 3)])
def test_every_shape_of_a_tile(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, 5)) for n in shape)
    assert apart(network(mn.ReLU()), x, y) < ROUNDINGS
    assert apart(network(mn.Erf()), x) < ROUNDINGS


@pytest.mark.parametrize("shape", [(60_000, 1), (20_000, 17)])
def test_tall_tiles_of_few_columns(shape: tuple[int, int]) -> None:
    """Compare tall tiles of 1 and of 17 columns with NumPy's kernels."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, 2)) for n in shape)
    assert apart(network(mn.ReLU()), x, y) < ROUNDINGS
