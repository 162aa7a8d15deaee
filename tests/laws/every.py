"""Find every class that exists: the subclasses of a base, in all modules of both packages."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import isabstract
from typing import Any

import analytic
import minintk

WRONG_ON_PURPOSE = "analytic.verify."
"""Its optimisers are the errors that `verify` shows to be errors."""


@cache
def load() -> None:
    """Import every module, but for those that need a package that is not installed."""
    for package in (minintk, analytic):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.endswith(("__main__", "conftest")):
                try:
                    import_module(module.name)
                except ModuleNotFoundError as error:
                    if (error.name or "").partition(".")[0] in ("minintk", "analytic"):
                        raise


def descendants(base: Any) -> Iterator[Any]:
    """Yield the subclasses of a class, and theirs."""
    for kind in base.__subclasses__():
        yield kind
        yield from descendants(kind)


def every(base: Any) -> list[Any]:
    """Return the concrete subclasses in the library, by name; a class that a test defines is not one of them."""
    load()
    found = {kind for kind in descendants(base) if kind.__module__.startswith(("minintk.", "analytic."))}
    right = {kind for kind in found if not kind.__module__.startswith(WRONG_ON_PURPOSE)}
    public = {kind for kind in right if not isabstract(kind) and not kind.__name__.startswith("_")}
    return sorted(public, key=lambda kind: kind.__name__)
