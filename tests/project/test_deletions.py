"""Test that tests of the core use no names of satellites, because they also run without satellites."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.project.deletions import ROOT, SATELLITES, WHOLE, deleted, left_out

FOLDERS = tuple(f"{folder}/" for folder in deleted(list(SATELLITES)))

GUARDED = {"tests/kit/interrupted_sweep.py", "tests/kit/laws.py", "tests/laws/test_owned.py"}
"""Files that use a satellite's names only where the satellite exists."""


def names_of_satellites() -> set[str]:
    """Return the public names whose modules belong to satellites, e.g. "an.critical"."""
    found = set()
    for short, package in (("mn", "minintk"), ("an", "analytic")):
        nodes = ast.parse((ROOT / package / "__init__.pyi").read_text(encoding="utf-8")).body
        for node in (node for node in nodes if isinstance(node, ast.ImportFrom)):
            if f"{package}/{(node.module or '').replace('.', '/')}".startswith(FOLDERS):
                found |= {f"{short}.{alias.name}" for alias in node.names}
    return found


def used(text: str) -> set[str]:
    """Return the attribute accesses on plain names in a program, e.g. "an.critical"."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)]
    return {f"{node.value.id}.{node.attr}" for node in nodes if isinstance(node.value, ast.Name)}


def core_tests() -> list[Path]:
    """Return the files under tests/ that remain if all satellites are deleted."""
    gone = tuple(f"tests/{folder}" for folder in FOLDERS) + tuple(f"{folder}/" for folder in (*WHOLE, "tests/device"))
    out = left_out(ROOT, [folder.rstrip("/") for folder in FOLDERS])
    return [
        path
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path not in out and not path.relative_to(ROOT).as_posix().startswith(gone)
    ]


def test_tests_of_the_core_use_no_name_of_a_satellite() -> None:
    names, guarded = names_of_satellites(), set()
    assert "an.critical" in names
    assert "an.kernel" not in names
    for path in core_tests():
        name, found = path.relative_to(ROOT).as_posix(), used(path.read_text(encoding="utf-8")) & names
        if name in GUARDED:
            guarded |= {name} if found else set()
        elif found:
            pytest.fail(f"{name} uses {sorted(found)}: move these tests to the satellite's folder under tests/")
    assert guarded == GUARDED


def test_a_name_of_a_satellite_is_found() -> None:
    """Negative control: a test of the core that calls `an.critical` is found."""
    assert used("import analytic as an\nan.critical(phi)") & names_of_satellites() == {"an.critical"}
