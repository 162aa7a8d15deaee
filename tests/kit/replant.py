"""Plant an error by editing the source of a function."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

from tests.kit.laws import Patch


def replant(patch: Patch, owner: Any, what: str, right: str, wrong: str) -> None:
    """Replace `right` by `wrong` in the function owner.what, or raise AssertionError if `right` is absent."""
    here = inspect.unwrap(getattr(owner, what))
    source = textwrap.dedent(inspect.getsource(here))
    assert right in source, (what, right)
    space = dict(vars(inspect.getmodule(here)))
    exec("from __future__ import annotations\n" + source.replace(right, wrong), space)
    patch.setattr(owner, what, space[what])
