"""Count the calls of a function and record their arguments. Tests use counts, because times depend on the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def counted(owner: Any, name: str, measure: Callable[..., Any] = lambda *a, **k: 1) -> Iterator[list[Any]]:
    """Yield a list that receives `measure(*arguments)` at every call of `owner.name`, whose behaviour is unchanged."""
    calls: list[Any] = []
    plain = getattr(owner, name)

    def noted(*arguments: Any, **named: Any) -> Any:
        calls.append(measure(*arguments, **named))
        return plain(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, noted)
        yield calls
