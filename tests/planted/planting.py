"""What a planted error is, and the list of them all; see `planted`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planted_laws import Patch


@dataclass(frozen=True)
class Planted:
    """An error: what it is, how to plant it, and the law that must refuse it."""

    error: str
    plant: Callable[[Patch], None]
    law: Callable[[], None]


PLANTED: list[Planted] = []


def planted(error: str, law: Callable[[], None]) -> Callable[[Callable[[Patch], None]], None]:
    """Puts an error on the list."""
    return lambda plant: PLANTED.append(Planted(error, plant, law))
