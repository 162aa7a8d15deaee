"""Test that scenes have a frame for every position of the sliders, and that a script reproduces recorded frames."""

from __future__ import annotations

import json
import runpy
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCENES = Path(__file__).resolve().parents[2] / "docs" / "scenes"
pytestmark = pytest.mark.skipif(
    not SCENES.exists(), reason="there are no docs in this tree (an installed package, say)"
)


def scene(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCENES / f"{name}.json").read_text(encoding="utf-8"))
    return found


def numbers(value: Any) -> list[float]:
    """Return all numbers in JSON data."""
    if isinstance(value, dict | list):
        inside = value.values() if isinstance(value, dict) else value
        return [number for one in inside for number in numbers(one)]
    return [value] if isinstance(value, int | float) else []


@pytest.mark.parametrize("name", ["widths", "alphas", "rates"])
def test_a_frame_for_every_position(name: str) -> None:
    found = scene(name)
    assert len(found["frames"]) == prod(len(labels) for labels in found["sliders"].values())
    assert all(0 <= at < len(labels) for at, labels in zip(found["start"], found["sliders"].values(), strict=True))
    assert len({json.dumps(sorted(frame)) for frame in found["frames"]}) == 1
    assert all(map(isfinite, numbers(found["frames"])))


def test_the_scenes_show_what_their_captions_say() -> None:
    """The gap falls with the width, the kernel moves for small alpha, and the best rate stays the same only in muP."""
    found = scene("widths")
    ends = found["frames"][len(found["sliders"]["steps"]) - 1 :: len(found["sliders"]["steps"])]
    gaps = [np.abs(np.subtract(end["networks"][:2], end["linearised"])).max() for end in ends]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 20 * gaps[-1]
    found = scene("alphas")
    ends = found["frames"][len(found["sliders"]["steps"]) - 1 :: len(found["sliders"]["steps"])]
    moved = [end["kernel"] for end in ends]
    assert moved == sorted(moved, reverse=True)
    assert moved[0] > 1 > 0.01 > moved[-1]
    assert all(end["loss"] < 0.002 for end in ends)
    found = scene("rates")
    best: dict[str, list[int]] = {"muP": [], "standard": []}
    for end in found["frames"][3::4]:
        for name, at in best.items():
            at.append(int(np.argmin([np.inf if loss is None else loss for loss in end[name]])))
    assert np.ptp(best["muP"]) == 0
    assert best["standard"] == sorted(best["standard"], reverse=True)
    assert best["standard"][0] - best["standard"][-1] >= 2


def test_the_script_records_what_stands_there() -> None:
    record = runpy.run_path(str(SCENES / "record.py"))
    found, kept = record["widths"]((16,), (0, 1, 3)), scene("widths")
    for frame, old in zip(found["frames"], kept["frames"][:3], strict=True):
        np.testing.assert_allclose(frame["networks"], old["networks"], atol=0.02)
        np.testing.assert_allclose(frame["std"], old["std"], atol=0.02)
    assert not np.allclose(found["frames"][2]["networks"], kept["frames"][0]["networks"], atol=0.02)
