"""Test the laws of layers for every subclass of `Layer`. `every.examples` constructs layers of each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import minintk as mn
from minintk.testing import check_layer
from tests.kit.every import every, examples, layers

CASES = [(kind, *case) for kind in layers() for case in examples(kind)]
FIRST = {kind: case for kind, *case in reversed(CASES)}  # one case per class; the tests of other cases are marked slow


@pytest.mark.parametrize(
    ("kind", "layer", "shape"),
    [pytest.param(*case, marks=[pytest.mark.slow] * (case[1:] != tuple(FIRST[case[0]]))) for case in CASES],
    ids=[f"{layer}-{shape}" for _, layer, shape in CASES],
)
def test_every_layer_in_every_place(kind: Any, layer: Any, shape: tuple[int, ...]) -> None:
    check_layer(layer, shape)
    if kind.weights:
        check_layer(layer, shape, mn.Standard())


def test_a_layer_nobody_can_make_is_refused() -> None:
    @dataclass(frozen=True)
    class Strange(mn.spec.Layer):
        pass

    with pytest.raises(AssertionError, match="write how to make a Strange"):
        examples(Strange)
    assert Strange not in every(mn.spec.Layer)
