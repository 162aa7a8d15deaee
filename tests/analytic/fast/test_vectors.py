"""Test compiled lines of tiles against NumPy: they agree up to rounding, and all closed forms are compiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.recursion.duals import Homogeneous
from analytic.recursion.rules import Affine
from analytic.recursion.state import Law, RowState, Step
from analytic.vectors import plan
from minintk.arrays import Array
from minintk.spec.shapes import out_shape
from tests.analytic.recursion import test_closed_forms as closed_forms
from tests.analytic.recursion import test_range_checks as scales
from tests.analytic.recursion import test_unit_rows as degenerate

lines = pytest.importorskip("analytic.fast.vectors", reason="needs the extra fast")

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
    """Kernels of few rows too, and those that are imported above, against their oracles."""
    monkeypatch.setattr(plan, "ROWS_WORTH_COMPILED", 0)


CLOSED = [
    mn.ReLU(), mn.LeakyReLU(0.1), mn.Abs(), mn.RectifiedMonomial(2), mn.Erf(), mn.GELU(), mn.Sin(), mn.Cos(),
    mn.Sin(1.2, 0.8, 0.4), mn.Exp(1.0, 0.5), mn.Gaussian(),
]  # fmt: skip


def inputs(norms: str, dtype: str) -> tuple[Array, Array]:
    """Rows of one norm, of many, or some of zeros; nearly parallel ones among them."""
    x = np.random.default_rng(0).standard_normal((130, 24))
    x[1], x[2], x[3] = x[0] + 1e-4, -x[0], 2 * x[0]
    if norms == "one":
        x = np.sign(x)
    if norms == "zeros":
        x[5] = 0
    return x[:75].astype(dtype), x[75:].astype(dtype)


@contextmanager
def by_numpy() -> Iterator[None]:
    """Leave everything to NumPy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "through", lambda door: None)
        yield


def apart(kernel: an.Kernel, *x: Array) -> float:
    """The passes' distance from NumPy, relative to sqrt(k(x, x) k(x', x')), in roundings of the inputs' precision."""
    with by_numpy():
        plain = kernel.both(*x)
        own = [kernel.diag(side.astype("float64")) for side in (x[0], x[-1])]
    worst = 0.0
    for new, old, left, right in zip(kernel.both(*x), plain, *own, strict=True):
        scale = np.sqrt(np.outer(left, right))
        worst = max(worst, float((np.abs(new - old) / np.where(scale > 0, scale, 1)).max()))
    return worst / float(np.finfo(x[0].dtype).eps)


@contextmanager
def counted() -> Iterator[list[str]]:
    """Count the steps that are compiled, and those that are left to NumPy."""
    found: list[str] = []
    right = lines.texts

    def texts(*of: Any) -> Any:
        made = right(*of)
        found.append("numpy" if made is None else "compiled")
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "texts", texts)
        yield found


def network(phi: mn.spec.Layer, *more: mn.spec.Layer) -> an.Kernel:
    dense = mn.Dense(8, w_std=1.3, b_std=0.2)
    return an.kernel(mn.Sequential(dense, phi, *more, dense, phi, mn.Dense(1)))


ROUNDINGS = 60
"""Two layers: each of the functions is right to a rounding or two, and they follow one another."""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norms", ["one", "many", "zeros"])
@pytest.mark.parametrize("phi", CLOSED, ids=repr)
def test_a_pass_is_what_numpy_does(phi: Any, norms: str, dtype: str) -> None:
    """All activations; x with itself and with others; and all steps are compiled, but for rows of zeros."""
    x, y = inputs(norms, dtype)
    kernel = network(phi)
    with counted() as steps:
        assert apart(kernel, x) < ROUNDINGS
        assert apart(kernel, x, y) < ROUNDINGS
    if norms != "zeros":
        assert set(steps) == {"compiled"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "layer",
    [
        mn.Residual(mn.Sequential(mn.ReLU(), mn.Dense(8, b_std=0.3))),
        mn.Sum(mn.Sequential(mn.Erf(), mn.Dense(8)), mn.Dense(8, w_std=0.7)),
        mn.Product(mn.Dense(8), mn.Sequential(mn.ReLU(), mn.Dense(8))),
        mn.Concat(mn.Dense(8), mn.Sequential(mn.ReLU(), mn.Dense(4))),
        mn.Sequential(mn.Dropout(0.3), mn.Dense(8)),
        mn.LayerNorm(),
        mn.Scale(0.3),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_of_two_parts(layer: Any, dtype: str) -> None:
    """Both parts are compiled, and NumPy puts them together."""
    dense = mn.Dense(8, b_std=0.2)
    kernel = an.kernel(mn.Sequential(dense, layer, mn.Dense(8, b_std=0.1), mn.ReLU(), mn.Dense(1)))
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
    """A line of them is shorter than a vector."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, 2)) for n in shape)
    assert apart(network(mn.ReLU()), x, y) < ROUNDINGS


@pytest.mark.parametrize("name", ["dense", "homogeneous", "end"])
def test_a_wrong_text_is_found_out(name: str) -> None:
    """The negative control: numbers of a step off by so much as float32's roundings."""
    right, x = lines.texts, inputs("many", "float64")

    def texts(*of: Any) -> Any:
        made = right(*of)
        return made and [
            one._replace(
                left=tuple(a * (1 + 1e-7) for a in one.left), constants=tuple((1 + 1e-7) * c for c in one.constants)
            )
            if one.name == name
            else one
            for one in made
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "texts", texts)
        assert apart(network(mn.ReLU()), *x) > 1e6


def test_steps_from_elsewhere_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is a step of ours whose method somebody has exchanged."""
    x, y = inputs("many", "float64")
    kernel = network(mn.ReLU())
    right = kernel.nngp(x, y)
    pairs = Homogeneous.pairs

    def wrong(self: Any, at: Any, row: Any) -> None:
        pairs(self, at, row)
        at.p[...] *= 0.5

    monkeypatch.setattr(Homogeneous, "pairs", wrong)
    assert np.abs(kernel.nngp(x, y) - right).max() > 0.01


@dataclass
class Doubling(Step):
    """A user's step that cannot be hashed, nor can its coefficients."""

    factor: float = 2.0

    def law(self, law: Law) -> Law:
        return law

    def rows(self, rows: RowState) -> tuple[RowState, Any]:
        return rows.to(self.factor * rows.q, self.factor * rows.theta), {"rows": rows.q}

    def pairs(self, pairs: Any, row: Any) -> None:
        """Angles stay."""


class Filling(Affine):
    """One of our steps with a part that only arrays know."""

    def tangents(self, pairs: Any, row: Any) -> None:
        pairs.tau.fill(0.25)


class Other(mn.spec.Layer):
    """A user's layer."""

    step: Step


out_shape.register(Other)(lambda layer, shape: shape)
an.lower.register(Other)(lambda layer, site, parametrization: (layer.step,))


@pytest.mark.parametrize("step", [Doubling(), Filling(2.0, 0.0, 1.0, 0.0)])
def test_users_steps_may_be_anything(step: Step) -> None:
    """NumPy runs them, whatever they and their coefficients are; the steps before them are compiled."""
    layer = Other()
    object.__setattr__(layer, "step", step)
    kernel = an.kernel(mn.Sequential(mn.Dense(8), mn.ReLU(), mn.Dense(8), layer, mn.ReLU(), mn.Dense(1)))
    assert apart(kernel, *inputs("many", "float64")) < ROUNDINGS
