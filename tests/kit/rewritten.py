"""Edit the source of a library function, to plant an error that no argument can cause."""

from __future__ import annotations

import inspect
import sys
from textwrap import dedent
from typing import Any

import pytest


def rewrite(patch: pytest.MonkeyPatch, owner: Any, name: str, before: str, after: str) -> None:
    """Replace `before`, which occurs once in the source of owner.name, by `after` until `patch` is undone."""
    found = vars(owner)[name]
    text = dedent(inspect.getsource(found))
    assert text.count(before) == 1, f"{before!r} stands {text.count(before)} times in {name}"
    inside: dict[str, Any] = dict(vars(sys.modules[found.__module__]))
    exec(compile(text.replace(before, after), f"<{name}, rewritten>", "exec"), inside)
    patch.setattr(owner, name, inside[name])
