"""Import each satellite when it is first needed.  A satellite is a set of folders that the core does not need.

    networks     faster layers for networks                  minintk/fast
    kernels      faster loops for the kernel recursion       analytic/fast
    blocks       kernels in blocks, on disk, by executors    analytic/large
    diagnosis    finds what is wrong with a layer            minintk/grade
    phase        the phase of a network, in one line         analytic/phases
    roundings    how layers amplify rounding errors          analytic/phases

In the core, only this module, `__main__` and the lazily loaded interfaces of the two packages import satellites.
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
    """Return the object that DOORS lists for `door`, or `otherwise` if the object's satellite was deleted.

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
