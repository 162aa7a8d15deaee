"""Find the public subclasses of a base class in minintk and analytic, and build examples of each layer class."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import MISSING, Field, fields
from functools import cache, partial
from importlib import import_module
from inspect import isabstract
from typing import Any, get_args

import analytic
import minintk as mn
from minintk.spec.shapes import out_shape

WRONG_ON_PURPOSE = "analytic.verify."
"""Prefix of the modules that define optimisers with deliberate errors."""


@cache
def load() -> None:
    """Import all modules of minintk and analytic, except __main__, conftest and those that need a missing package."""
    for package in (mn, analytic):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.endswith(("__main__", "conftest")):
                try:
                    import_module(module.name)
                except ModuleNotFoundError as error:
                    if (error.name or "").partition(".")[0] in ("minintk", "analytic"):
                        raise


def descendants(base: Any) -> Iterator[Any]:
    """Yield the subclasses of a class, recursively."""
    for kind in base.__subclasses__():
        yield kind
        yield from descendants(kind)


def every(base: Any) -> list[Any]:
    """Return the concrete public subclasses of `base`, sorted by name, except those with deliberate errors."""
    load()
    found = {kind for kind in descendants(base) if kind.__module__.startswith(("minintk.", "analytic."))}
    right = {kind for kind in found if not kind.__module__.startswith(WRONG_ON_PURPOSE)}
    public = {kind for kind in right if not isabstract(kind) and not kind.__name__.startswith("_")}
    return sorted(public, key=lambda kind: kind.__name__)


# ------------------------------------------------------------------------------------------ layers, by their class

CONV, NUMBER = partial(mn.Conv2d, b_std=0.2), 0.6
ARGUMENTS: dict[str, Any] = {"float": NUMBER, "int": 3, "tuple[float, ...]": (0.3, -0.8, 0.2, 0.1)}
"""Arguments by type of field (other types: Tanh()). A second example sets all floats to NUMBER (`low`: -NUMBER)."""

MORE: dict[str, list[tuple[Any, tuple[int, ...]]]] = {
    "AvgPool": [
        (mn.AvgPool((1, 3), stride=2, padding="same"), (3, 4, 1)),
        (mn.AvgPool(3, stride=2, padding=(2, 1), normalize_edges=True), (4, 3, 2)),
    ],
    "Concat": [
        (mn.Concat(mn.Product(mn.Dense(1)), mn.Sum(mn.Dense(3)), mn.Scale(-0.5), mn.Product(mn.Sin(), mn.Erf())), (3,)),
        (mn.Concat(CONV(1), mn.Sum(CONV(2), mn.AvgPool(3, stride=1, padding="same"))), (4, 3, 2)),
        (mn.Concat(mn.Dense(3), mn.Scale(-0.5)), (4,)),
    ],
    "Conv1d": [(mn.Conv1d(3, 4, stride=2, b_std=0.2), (5, 2))],
    "Conv2d": [
        (CONV(3, 3), (4, 5, 2)),
        (CONV(2, 5, padding="circular"), (2, 3, 1)),
        (mn.Conv2d(2, 2, stride=3, padding=((0, 2), (1, 0))), (3, 4, 2)),
        (mn.Conv2d(2, 1, stride=2), (3, 3, 2)),
    ],
    "GlobalSelfAttention": [(mn.GlobalSelfAttention(2, heads=2, scaling="sqrt", zeta=mn.Identity()), (3, 2))],
    "LayerNorm": [(mn.LayerNorm(eps=0.1, axes=axes), (2, 3, 2)) for axes in ((-3, -1), (-3, -2))],
    "MaxPool": [
        (mn.MaxPool(3, stride=2, padding="same"), (5, 4, 2)),
        (mn.MaxPool(3, stride=1, padding="circular"), (2, 3, 2)),
    ],
    "Product": [
        (mn.Product(CONV(2), mn.Sequential(CONV(2), mn.Sigmoid()), mn.Identity()), (4, 3, 2)),
        (mn.Product(mn.Dense(4), mn.Sequential(mn.Dense(4), mn.Erf())), (4,)),
    ],
    "Residual": [(mn.Residual(mn.Sequential(mn.Tanh(), mn.Dense(3)), shortcut=mn.Dense(3)), (4,))],
    "Sin": [(mn.Cos(1.3, 0.8, 0.2), (4,)), (mn.Rbf(0.6), (4,))],
    "Softplus": [(mn.Softplus(beta=5.0, scale=1.404383), (4,))],
    "Sum": [(mn.Sum(mn.Dense(4, b_std=0.4), mn.Identity(), mn.Sequential(mn.Tanh(), mn.Dense(4))), (4,))],
}  # fmt: skip
"""Further examples, with combinations of arguments that ARGUMENTS does not cover."""


def type_of(field: Field[Any]) -> str:
    """Return a field's annotation as a string, with or without `from __future__ import annotations`."""
    return field.type.__name__ if isinstance(field.type, type) and not get_args(field.type) else str(field.type)


def layers() -> list[Any]:
    """Return every public layer class that has no public subclass."""
    found = every(mn.spec.Layer)
    return [kind for kind in found if not any(issubclass(other, kind) for other in found if other is not kind)]


def examples(kind: Any) -> list[tuple[Any, tuple[int, ...]]]:
    """Return example layers of a class, each with a valid input shape."""
    if issubclass(kind, mn.spec.layers.Several):
        made = [kind(mn.Tanh(), mn.Sin())]
    else:
        given = {f.name: ARGUMENTS.get(type_of(f), mn.Tanh()) for f in fields(kind) if f.default is MISSING}
        numbers = {f.name: -NUMBER if f.name == "low" else NUMBER for f in fields(kind) if type_of(f) == "float"}
        made = [kind(**given), *([kind(**given | numbers)] if numbers.keys() - given.keys() else [])]
    found: list[tuple[Any, tuple[int, ...]]] = []
    for shape in ((4,), (4, 3), (2, 3, 3)):
        with suppress(ValueError, TypeError):
            out_shape(made[0], shape)
            found += [(layer, shape) for layer in (made if not found else made[-1:])]
    assert found, f"write how to make a {kind.__name__} in tests/kit/every.py"
    return found + MORE.get(kind.__name__, [])
