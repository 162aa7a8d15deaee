"""Test that each decimal number with many digits is in tests/kit/golden.py or golden_clipped.py, with its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/kit/golden.py", ROOT / "tests/kit/golden_clipped.py"
MANY = 8
"""Decimal numbers with at least MANY significant digits need a recorded source. 1e-8 has a single digit."""

NUMBER = re.compile(r"(?<![\w.])\d[\d_]*\.\d+(?:[eE][+-]?\d+)?|(?<![\w.])\.\d+")


def many(text: str) -> list[str]:
    """Return the numbers in a text that have at least MANY significant digits."""
    return [n for n in NUMBER.findall(text) if len(re.sub(r"[eE].*|[._]", "", n).strip("0")) >= MANY]


def literals(code: str) -> Iterator[str]:
    """Yield the numbers with many digits in a module's code and strings, except docstrings."""
    tree = ast.parse(code if many(code) else "")  # most modules have none anywhere
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings: doctest checks them
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | float) and id(node) not in bare:
            text = ast.get_source_segment(code, node) if isinstance(node.value, float) else node.value
            yield from many(text or "")


def test_a_number_of_many_digits_names_its_source() -> None:
    known = "".join(path.read_text(encoding="utf-8") for path in GOLDEN)
    for folder in ("minintk", "analytic", "tests", "examples", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            unknown = [text for text in literals(path.read_text(encoding="utf-8")) if text not in known]
            assert not unknown, f"{path.relative_to(ROOT)}: put {unknown} into tests/kit/golden.py, with a formula"


def test_such_a_number_is_found() -> None:
    long = ("12345678", "1234567890")
    code = '"""Docstring, 0.{1}."""\nx = [0.00000{0}, 1e-8, 1.25, 0.1234567]\ny = "2 * (T)0.{1}"\n'.format(*long)
    assert set(literals(code)) == {f"0.00000{long[0]}", f"0.{long[1]}"}
