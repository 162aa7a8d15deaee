"""Provide helpers for the tests of scripts that rerun the experiments of papers."""

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from minintk.arrays import to_library
from tests.kit.arrays_under_test import namespace

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Found = dict[str, Any]
Case = tuple[dict[str, Any], Callable[[Found], None], Found]
"""The arguments of a small run, the check of the results, and wrong results on which the check must fail."""


def importable(monkeypatch: pytest.MonkeyPatch, *shared: str) -> None:
    """Make the modules of examples/ importable, as they are for scripts. shared : names of modules to import."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name in shared:
        monkeypatch.setitem(sys.modules, name, importlib.import_module(name))


def scripts(papers: Mapping[str, Any], long: set[str]) -> list[Any]:
    """Return the scripts as pytest parameters. Scripts in `long` take more than a few seconds and are marked slow."""
    assert long <= set(papers)
    return [pytest.param(name, marks=pytest.mark.slow if name in long else ()) for name in sorted(papers)]


def check_script(name: str, case: Case, folder: Path) -> None:
    """Run a script at reduced size, and assert that the results pass the check.

    The figure and the results must be in the folder, and the check must fail on `wrong` results.
    """
    arguments, check, wrong = case
    setting = importlib.import_module("common").Setting(name, folder)
    found = importlib.import_module(name).main(setting, **arguments)
    check(found)
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert set(json.loads((folder / f"{name}.json").read_text())) == set(found)
    with pytest.raises(AssertionError):
        check(found | {key: {**found[key], **v} if isinstance(v, dict) else v for key, v in wrong.items()})


def on_standin(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> list[int]:
    """Make `placed` in these modules move arrays to the strict stand-in. Return a list that gains an entry per call."""
    moved: list[int] = []

    def placed(*arrays: Any) -> tuple[Any, ...]:
        moved.append(len(arrays))
        return tuple(to_library(a, namespace("standin")) for a in arrays)

    for module in modules:
        monkeypatch.setattr(module, "placed", placed, raising=False)
    return moved


def same_claims(one: Found, other: Found) -> bool:
    """True if the tables make the same claims in the same order."""
    return [row["claim"] for row in one["table"]] == [row["claim"] for row in other["table"]]
