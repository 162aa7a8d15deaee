"""Thin out families of similar cases. By default, tests run a sample; `make.py test-all` runs all cases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def thinned(cases: Iterable[Any], every: int = 3) -> list[Any]:
    """Return the cases for parametrize. All are marked slow, except those whose index is a multiple of `every`.

    For a product of lists, choose an `every` that is coprime to the lengths of the lists. Each value then occurs
    in the sample.
    """
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[pytest.mark.slow] * (i % every > 0))
        for i, case in enumerate(cases)
    ]


def few(count: int) -> int:
    """Return the number of random examples to draw.

    The number is `count` by default. `make.py test-all` multiplies `count` and max_examples by the same factor.
    """
    return count * settings().max_examples // settings.get_profile("fixed").max_examples
