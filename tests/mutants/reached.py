"""Record which functions each test calls, or run selected tests in a given order: a pytest plugin with two uses.

The environment variable REACHED_RECORD names the file for the recorded map, and REACHED_ONLY the file that selects
tests. The map is built once, so it contains functions rather than line numbers, which change. Neither child processes
nor threads of minintk's pool are traced.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

HOMES = tuple(os.path.join(os.getcwd(), package) + os.sep for package in ("minintk", "analytic"))
RECORD, ONLY = os.environ.get("REACHED_RECORD"), os.environ.get("REACHED_ONLY")

found: dict[str, dict[str, Any]] = {}
reached: set[tuple[str, str]] = set()


def follow(frame: FrameType, event: str, argument: object) -> None:
    """Record the function that is called, and return None, so that its lines are not traced."""
    code = frame.f_code
    if code.co_filename.startswith(HOMES):
        reached.add((code.co_filename, code.co_qualname))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, None, None]:
    """Trace one test, including the fixtures."""
    if not RECORD:
        yield
        return
    reached.clear()
    threading.settrace(follow)
    sys.settrace(follow)
    started = sum(os.times()[:4])
    yield
    sys.settrace(None)
    seconds = sum(os.times()[:4]) - started
    names = {f"{os.path.relpath(path)}::{name.removesuffix('.<lambda>')}" for path, name in reached.copy()}
    found.setdefault(item.nodeid, {}).update(reached=sorted(names), seconds=seconds)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record whether a test passed."""
    if RECORD:
        entry = found.setdefault(report.nodeid, {})
        entry["passed"] = entry.get("passed", True) and not report.failed


def pytest_sessionfinish() -> None:
    """Write the map of tests to functions."""
    if RECORD:
        Path(RECORD).write_text(json.dumps(found), encoding="utf-8")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the requested tests in the given order, and tests in the files `young` that the map does not contain."""
    if not ONLY:
        return
    asked = json.loads(Path(ONLY).read_text(encoding="utf-8"))
    order = {name: i for i, name in enumerate(asked["run"])}
    known, young = set(asked["known"]), tuple(asked["young"])
    chosen = [i for i in items if i.nodeid in order or (i.nodeid not in known and i.nodeid.startswith(young))]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = sorted(chosen, key=lambda item: order.get(item.nodeid, -1))
