"""Test that the public surface equals the record, and that the comparison detects changed names and parameters."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import pytest

from tests.project import surface


def test_the_surface_is_the_one_recorded() -> None:
    pytest.importorskip("sklearn", reason="the estimators are among the names")
    found = surface.changes(surface.RECORD.read_text(encoding="utf-8"), surface.surface())
    assert not found, (
        "the interface changed: if so it shall be, python -m tests.project.surface --update\n" + "\n".join(found)
    )


@dataclass
class Example:
    """A class with the fields a and b."""

    a: int
    b: int = 1

    def scaled(self, *factors: float, by: float = 1.0, **rest: float) -> None:
        """Nothing."""


def test_every_kind_of_parameter_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Example, "__module__", "minintk.example")
    assert surface.line("Example", Example) == "Example(a, b=) a b scaled(*factors, by=, **rest)"
    assert surface.call(lambda x, *, y, z=0: x) == "(x, *, y, z=)"


def test_a_change_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn", reason="the estimators are among the names")
    before = surface.surface()
    train = importlib.import_module("minintk").train
    monkeypatch.setattr("minintk.train", lambda model, theta, x: train(model, theta, x))
    found = surface.changes(before, surface.surface())
    assert found[-1] == "+ minintk.train(model, theta, x)"
    assert [one.partition("(")[0] for one in found] == ["- minintk.train", "+ minintk.train"]
