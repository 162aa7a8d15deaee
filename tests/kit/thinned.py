"""Thin out families of similar test cases. By default, tests run a sample; `make.py test-all` runs all cases.

`FAMILIES` lists the parametrized tests that take seconds, with the share of cases that run by default. To rewrite this
list, name the folder, so that families run in full:

    python3 make.py test tests --durations=0 > durations.log
    python3 make.py python -m tests.kit.thinned durations.log
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings


def thinned(cases: Iterable[Any], every: int = 3) -> list[Any]:
    """Return the cases for parametrize. All are marked slow, except those whose index is a multiple of `every`.

    For a product of lists, choose an `every` that is coprime to the lengths of the lists. A value of a list then
    occurs in the sample if the product of the lengths of all later lists is at least `every`.
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


FAMILIES = Path(__file__).with_suffix(".txt")
SECONDS = 1.5
"""Time that a family may take by default."""
WHOLE = "tests/project/test_project.py", "tests/laws/test_laws.py"
"""Files of tests that run whole: examples of the documentation, and the laws of all models."""


def thin(items: Sequence[pytest.Item], families: str) -> None:
    """Mark the cases of listed families as slow, except the first case and one in `every`, chosen by their names."""
    every = {name: int(count) for count, name in map(str.split, families.splitlines())}
    seen: set[str] = set()
    for item in items:
        family = item.nodeid.partition("[")[0]
        if family in every and item.get_closest_marker("slow") is None:
            if family in seen and crc32(item.nodeid.encode()) % every[family]:
                item.add_marker(pytest.mark.slow)
            seen.add(family)


def listed(durations: str) -> str:
    """Return the list of families, given the output of pytest --durations=0 for families that run in full."""
    seconds, cases = defaultdict[str, float](float), defaultdict[str, set[str]](set)
    for time, case in re.findall(r"^ *([0-9.]+)s (?:call|setup|teardown) +(tests/.*)$", durations, re.M):
        family = case.partition("[")[0]
        seconds[family] += float(time)
        cases[family].add(case)
    every = {
        family: min(len(cases[family]), ceil(time / SECONDS))
        for family, time in sorted(seconds.items())
        if time > SECONDS and len(cases[family]) > 1 and not family.startswith(WHOLE)
    }
    return "".join(f"{count} {family}\n" for family, count in every.items())


if __name__ == "__main__":
    FAMILIES.write_text(listed(Path(sys.argv[1]).read_text("utf-8")), "utf-8")
