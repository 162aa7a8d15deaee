"""Import satellites on demand: folders that can be deleted, looked up when they are first needed.

    networks     the layers of a network by cheaper ways     minintk/fast
    kernels      the recursion of kernels by cheaper ways    analytic/fast
    blocks       kernels on disk, and by executors           analytic/large
    diagnosis    what is wrong with a layer                  minintk/grade
    phase        where a network stands, in one line         analytic/phases
    roundings    what layers make of rounding errors         analytic/phases

Nothing else in the core names a satellite, except the interfaces of the two packages, which import names on use.
"""

from __future__ import annotations

from functools import cache, partial
from importlib import import_module
from typing import Any

from minintk.undisturbed import undisturbed

DOORS = {
    "networks": "minintk.fast.accelerate:faster",
    "kernels": "analytic.fast.accelerate:faster",
    "blocks": "analytic.large.streaming:kernels_by_blocks",
    "diagnosis": "minintk.grade.checks:diagnose_layer",
    "phase": "analytic.phases.phase:in_one_line",
    "roundings": "analytic.phases.maps:roundings",
}


@cache
def through(door: str, otherwise: Any = None) -> Any:
    """Return the object at a door, or `otherwise` if its satellite was deleted.

    >>> through("networks", "as written") is not None
    True
    """
    module, _, name = DOORS[door].partition(":")
    try:
        return getattr(undisturbed(partial(import_module, module)), name)
    except ModuleNotFoundError as error:
        if not module.startswith(error.name or "?"):
            raise
        return otherwise
