"""Test that recorded reference values follow from their formulas, and that a wrong digit is detected."""

from __future__ import annotations

import pytest

from tests.kit import golden

QUICK = {"vectors: relu", "ensemble: ntk, inf", "largest rate", "softplus", "in code"}
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in golden.checks()]


@pytest.mark.parametrize("name", NAMES)
def test_golden_numbers_are_what_their_formulas_give(name: str) -> None:
    distance, allowed = golden.apart(name)
    assert distance <= allowed


@pytest.mark.slow
def test_numbers_of_clipped_activations_are_what_integrals_give() -> None:
    clipped = pytest.importorskip("tests.kit.golden_clipped", reason="needs minintk.more_layers")
    assert clipped.apart() <= 2e-14


def test_a_wrong_tenth_decimal_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, (first, *others) = golden.VECTORS["relu"]
    monkeypatch.setitem(golden.VECTORS, "relu", (spec, (first + 1e-10, *others)))
    distance, allowed = golden.apart("vectors: relu")
    assert distance > allowed
