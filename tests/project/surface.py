"""Compare the public surface (all public names, parameters of callables, members of classes) with surface.txt.

    python -m tests.project.surface             fails if the packages' names or parameters differ from surface.txt
    python -m tests.project.surface --update    records a change of the interface, which belongs in the changelog

A line is `name(parameters) members`. An equals sign marks an optional parameter.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

RECORD = Path(__file__).with_name("surface.txt")
MODULES = (
    "minintk", "minintk.datasets", "minintk.diagnostics", "minintk.grade", "minintk.more_layers", "minintk.spec.zoo",
    "minintk.testing", "minintk.training.checkpoints", "analytic", "analytic.textbook", "analytic.verify",
)  # fmt: skip
"""Modules with public names. The names are those in `__all__` or, without `__all__`, those that the module defines."""


def call(thing: Any) -> str:
    """Return the parameters of a callable as "(a, b=, *, c)", or "" if the callable has no signature."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return ""
    found, keyword = [], False
    for p in parameters:
        if p.name == "self":
            continue
        if p.kind is p.KEYWORD_ONLY and not keyword:
            found.append("*")
        keyword |= p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        star = "*" * (p.kind is p.VAR_POSITIONAL) + "**" * (p.kind is p.VAR_KEYWORD)
        found.append(star + p.name + "=" * (p.default is not p.empty))
    return f"({', '.join(found)})"


def own(thing: type) -> list[type]:
    """Return the class and its base classes, except those defined outside minintk and analytic."""
    return [c for c in thing.__mro__ if c.__module__.startswith(("minintk", "analytic"))]


def members(thing: type) -> list[str]:
    """Return the public fields, methods and properties of a class."""
    ours = own(thing)
    names = {name for c in ours for name in (*vars(c), *getattr(c, "__annotations__", {}))}
    names |= {field.name for field in fields(thing)} if is_dataclass(thing) else set()
    public = sorted(name for name in names if not name.startswith("_") and not name.endswith("_request"))  # sklearn's
    return [n + (call(getattr(thing, n)) if inspect.isroutine(getattr(thing, n, None)) else "") for n in public]


def line(name: str, thing: Any) -> str:
    """Return the line of surface.txt for a name."""
    if inspect.isclass(thing):  # omit inherited constructors, which can depend on the version of Python
        made = any({"__init__", "__new__"} & {*vars(c)} for c in own(thing))
        return " ".join([name + call(thing) * made, *members(thing)])
    return name + (call(thing) if inspect.isroutine(thing) else "")


def public(module: ModuleType) -> list[str]:
    """Return the public names of a module."""
    own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
    return list(getattr(module, "__all__", (name for name in own if not name.startswith("_"))))


def surface() -> str:
    """Return the text of surface.txt for the current packages: a line for each public name, sorted."""
    modules = [importlib.import_module(name) for name in MODULES]
    lines = {line(f"{module.__name__}.{name}", getattr(module, name)) for module in modules for name in public(module)}
    return "".join(f"{one}\n" for one in sorted(lines))


def changes(old: str, new: str) -> list[str]:
    """Return the lines that differ, old ones with the prefix "- " and new ones with "+ "."""
    a, b = old.splitlines(), new.splitlines()
    return [f"- {one}" for one in a if one not in b] + [f"+ {one}" for one in b if one not in a]


def main(arguments: list[str]) -> int:
    """Compare the packages with the record, or rewrite the record. Return the exit status."""
    if "--update" in arguments:
        RECORD.write_text(surface(), encoding="utf-8")
    found = changes(RECORD.read_text(encoding="utf-8"), surface())
    print("".join(f"{one}\n" for one in found), end="")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
