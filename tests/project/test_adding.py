"""Test that examples in docs/reference/extending.md obey the laws of their kinds, and that wrong variants do not."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from minintk.layers.activation import Pointwise, pointwise
from minintk.testing import check_layer, weights
from tests.analytic.recursion.test_closed_forms import Plain, check_against_quadrature
from tests.kit.every import examples
from tests.laws.test_every_optimizer import LAWS, resumes, scales_tell, settings_tell
from tests.laws.test_every_step import check_average
from tests.project.test_project import CODE, PAGES

pytestmark = pytest.mark.skipif("reference/extending" not in PAGES, reason="there are no docs in this tree")


@cache
def page() -> Any:
    """Return the code of the page as a module, so that its classes can be pickled."""
    module = sys.modules["extending_page"] = ModuleType("extending_page")
    for block in CODE.findall(PAGES["reference/extending"].read_text(encoding="utf-8")):
        exec(compile(block, "extending.md", "exec"), vars(module))
    return module


# ---------------------------------------------------------------------------------------------- the optimizer


@pytest.mark.parametrize("name", ["Lion", "Averaged"])
def test_optimizers(name: str, tmp_path: Path) -> None:
    for law in LAWS:
        law(vars(page())[name])
    resumes(vars(page())[name], tmp_path)


def test_wrong_lions_are_refused() -> None:
    @dataclass(frozen=True)
    class Forgets(page().Lion):  # type: ignore[misc]
        def step(self, theta: Any, gradient: Any, memory: Any, scales: Any) -> None:
            super().step(theta, gradient, memory.copy(), scales)

    @dataclass(frozen=True)
    class Unscaled(page().Lion):  # type: ignore[misc]
        def step(self, theta: Any, gradient: Any, memory: Any, scales: Any) -> None:
            super().step(theta, gradient, memory, None)

    with pytest.raises(AssertionError, match="changes nothing"):
        settings_tell(Forgets)
    with pytest.raises(AssertionError, match="forgets its scales"):
        scales_tell(Unscaled)


# --------------------------------------------------------------------------------------------- the activation


def test_snake() -> None:
    for phi, shape in examples(page().Snake):
        check_layer(phi, shape)
        check_against_quadrature(phi, Plain(phi))


def test_wrong_snakes_are_refused() -> None:
    @dataclass(frozen=True)
    class Wrong(page().Snake):  # type: ignore[misc]
        """A Snake whose derivative, or whose kappa_dot at infinite width, is multiplied by a factor."""

        derivative: float = 1.0
        slope: float = 1.0

    def wrong(layer: Any) -> Pointwise:
        right = page().snake(layer)
        kappa, kappa_dot = right.dual
        dual = kappa, lambda *given: layer.slope * kappa_dot(*given)
        return replace(right, dphi=lambda xp, x: layer.derivative * right.dphi(xp, x), dual=dual)

    pointwise.register(Wrong, wrong)
    check_layer(Wrong(), (3,))
    with pytest.raises(AssertionError):
        check_layer(Wrong(derivative=1.01), (3,))
    with pytest.raises(AssertionError, match="off by"):
        check_against_quadrature(Wrong(slope=1 + 1e-10), Plain(page().Snake()))


# -------------------------------------------------------------------------------------------------- the layer


def test_gains() -> None:
    spec = mn.Sequential(weights((4,)), page().Gains())
    check_average(spec, (4,))
    assert an.kernel(spec).ntk(np.eye(4)).shape == (4, 4)
    with pytest.raises(mn.UnsupportedLayer, match="put a Dense layer before it"):
        an.kernel(mn.Sequential(mn.Dense(4), page().Gains(), mn.Tanh(), mn.Dense(1))).ntk(np.eye(4))


@pytest.mark.parametrize("rule", [(1.0, 0.0, 0.0, 0.0), (1.1, 0.0, 1.0, 0.0)], ids=["Theta' = Theta", "K' = 1.1 K"])
def test_wrong_rules_of_gains_are_refused(rule: tuple[float, ...]) -> None:
    class Wrong(page().Gains):  # type: ignore[misc]
        pass

    an.lower.register(Wrong, lambda *_: (page().GainsStep(*rule),))
    one, other = (mn.Sequential(weights((4,)), layer) for layer in (page().Gains(), Wrong()))
    with pytest.raises(AssertionError, match="z = "):
        check_average(one, (4,), other)
