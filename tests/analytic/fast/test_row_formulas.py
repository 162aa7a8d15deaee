"""Evaluate the formulas for pairs of vectors in NumPy as written, and compare them with the steps they replace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.fast import row_formulas
from analytic.fast.accelerate import Faster
from analytic.fast.row_formulas import Part, Text
from analytic.recursion.duals import Homogeneous
from analytic.recursion.rules import Affine
from analytic.recursion.scalar_forms import Arithmetic
from analytic.recursion.state import Block, Law, RowState, Step
from analytic.vectors import plan
from minintk.spec.shapes import out_shape
from tests.kit.row_laws import CLOSED, ROUNDINGS, TWO_PARTS, apart, between, inputs, law_of_passes, network


def evaluated(found: list[Text], begin: bool) -> Part:
    """Return a `Part` that evaluates the formulas `found` as written, on whole blocks."""

    def run(block: Block) -> None:
        m, p, tau = Arithmetic(np, block.p.dtype), block.p, block.tau
        if begin and tau is not None:
            tau[...] = 0
        for text in found:
            one, two = (
                tuple(np.broadcast_to(a, max(a.size, at.stop))[at].astype(p.dtype) for a in numbers)
                for at, numbers in ((block.i, text.left), (block.j, text.right))
            )
            one = tuple(a[:, None] for a in one)
            after, slope = row_formulas.TEXTS[f"a row's {text.name}"](m, p, tau, one, two, text.constants)
            p[...] = after
            if tau is not None:
                tau[...] = slope

    return run


@pytest.fixture(autouse=True)
def _as_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "ROWS_WORTH_COMPILED", 0)

    def passes(program: Any, coefficients: Any, *_: Any) -> list[Part]:
        return row_formulas.parts(program, coefficients, evaluated)

    monkeypatch.setattr(Faster, "passes", lambda self, xp: passes)


@pytest.mark.parametrize("norms", ["one", "many", "zeros"])
@pytest.mark.parametrize("phi", CLOSED, ids=repr)
def test_a_formula_is_its_step(phi: Any, norms: str) -> None:
    law_of_passes(phi, norms, "float64")


@pytest.mark.parametrize("layer", TWO_PARTS, ids=lambda layer: type(layer).__name__)
def test_layers_of_two_parts(layer: Any) -> None:
    for norms in ("many", "zeros"):
        assert apart(between(layer), *inputs(norms, "float64")) < ROUNDINGS


@pytest.mark.parametrize("name", ["dense", "homogeneous", "end"])
def test_a_wrong_text_is_found_out(name: str) -> None:
    """Negative control: the check fails if a step's coefficients are off by a relative 1e-7 (about eps in float32)."""
    right, x = row_formulas.texts, inputs("many", "float64")

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
        patch.setattr(row_formulas, "texts", texts)
        assert apart(network(mn.ReLU()), *x) > 1e6


def test_steps_from_elsewhere_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library step with a patched method runs in NumPy, because compiled code would ignore the patch."""
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
    """A user's step that is unhashable and has unhashable coefficients."""

    factor: float = 2.0

    def law(self, law: Law) -> Law:
        return law

    def rows(self, rows: RowState) -> tuple[RowState, Any]:
        return rows.to(self.factor * rows.q, self.factor * rows.theta), {"rows": rows.q}

    def pairs(self, pairs: Any, row: Any) -> None:
        """Leave the angles unchanged."""


class Filling(Affine):
    """A user's subclass of a library step. Its method `tangents` requires an array."""

    def tangents(self, pairs: Any, row: Any) -> None:
        pairs.tau.fill(0.25)


class Other(mn.spec.Layer):
    """A user's layer."""

    step: Step


out_shape.register(Other)(lambda layer, shape: shape)
an.lower.register(Other)(lambda layer, site, parametrization: (layer.step,))


@pytest.mark.parametrize("step", [Doubling(), Filling(2.0, 0.0, 1.0, 0.0)])
def test_users_steps_may_be_anything(step: Step) -> None:
    """Check that NumPy runs users' steps, whatever the types of the steps and their coefficients."""
    layer = Other()
    object.__setattr__(layer, "step", step)
    kernel = an.kernel(mn.Sequential(mn.Dense(8), mn.ReLU(), mn.Dense(8), layer, mn.ReLU(), mn.Dense(1)))
    assert apart(kernel, *inputs("many", "float64")) < ROUNDINGS
