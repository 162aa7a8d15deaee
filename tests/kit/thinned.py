"""Thin out families of near-equal cases: a spread-out sample on every change, all of them in `make.py test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def thinned(cases: Iterable[Any], every: int = 3) -> list[Any]:
    """Return the cases to parametrize with; all but each `every`-th are marked slow.

    For a product of lists, take an `every` that has no divisor in common with their lengths: each value is met then.
    """
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[pytest.mark.slow] * (i % every > 0))
        for i, case in enumerate(cases)
    ]


def few(count: int) -> int:
    """Return how many examples to draw: `count` on every change, and in `test-all` as many times more as by default."""
    return count * settings().max_examples // settings.get_profile("fixed").max_examples
