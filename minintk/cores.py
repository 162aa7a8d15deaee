"""Determine how many threads to use from this process's CPU affinity, its CPU quota and OMP_NUM_THREADS."""

from __future__ import annotations

import os
from functools import cache

from minintk.arrays import control_groups, text_of


def cores() -> int:
    """Return the minimum of the process's CPU affinity (in cores), its CPU quota (in cores), and OMP_NUM_THREADS."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(count, cores_granted(), threads_asked())


@cache
def threads_asked() -> int:
    """Return OMP_NUM_THREADS (the first number if it lists several), or 2**30 if unset or invalid."""
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(asked) if asked.isdecimal() and int(asked) else 2**30


@cache
def cores_granted(root: str = "/") -> int:
    """Return the number of whole cores (at least 1) that control groups (containers, SLURM) allow; 2**30 if unlimited.

    If more threads run, the system suspends all of them for part of each period.  root : the file system's root.
    """
    granted = 2**30
    for kind, group in control_groups(root, "cpu"):
        names = ["cpu.max"] if kind == "cgroup2" else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        fields = " ".join(text_of(group / name) for name in names).split()  # e.g. "150000 100000", "max 100000"
        if len(fields) == 2 and all(map(str.isdecimal, fields)):
            granted = min(granted, max(1, int(fields[0]) // int(fields[1])))
    return granted
