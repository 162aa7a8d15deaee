"""Test the number of threads under the CPU quotas of control groups and the caller's settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minintk.cores import cores, cores_granted, threads_asked


def test_cores_counts_what_this_process_may_use() -> None:
    affinity = getattr(os, "sched_getaffinity", lambda pid: range(os.cpu_count() or 1))
    assert 1 <= cores() <= len(affinity(0))


@pytest.mark.parametrize(("said", "count"), [("1", 1), ("3,1", 3), ("", 2**30), ("0", 2**30), ("many", 2**30)])
def test_threads_keep_to_the_callers_limit(said: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    threads_asked.cache_clear()
    try:
        assert threads_asked() == count
        assert 1 <= cores() <= count
    finally:
        threads_asked.cache_clear()


def tree(root: Path, files: dict[str, str]) -> str:
    """Write `files` below `root`, and return `root` as text."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{content}\n")
    return str(root)


V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"
V1_CPU = "33 24 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct"


@pytest.mark.parametrize(
    ("quotas", "count"),
    [
        ({"": "max 100000"}, 2**30),
        ({"job": "100000 100000"}, 1),
        ({"job": "250000 100000", "job/step": "max 100000"}, 2),
        ({"job": "50000 100000"}, 1),
        ({"job": "-1 100000"}, 2**30),
        ({"job": "300000 100000", "job/step": "900000 100000"}, 3),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_cores_granted_by_control_groups(version: int, quotas: dict[str, str], count: int, tmp_path: Path) -> None:
    """A group's CPU quota applies to the processes in it. Quotas are rounded down, but to at least one core."""
    files = {}
    for group, quota in quotas.items():
        if version == 2:
            files[f"sys/fs/cgroup/{group}/cpu.max"] = quota
        else:
            for name, number in zip(("quota", "period"), quota.replace("max", "-1").split(), strict=True):
                files[f"sys/fs/cgroup/cpu/{group}/cpu.cfs_{name}_us"] = number
    path = max(quotas, key=len)
    mount, line = (V2, f"0::/{path}") if version == 2 else (V1_CPU, f"4:cpu,cpuacct:/{path}")
    about = {"proc/self/mountinfo": mount, "proc/self/cgroup": line}
    assert cores_granted(tree(tmp_path, about | files)) == count


def test_a_process_with_a_quota_of_one_core_takes_one_thread() -> None:
    """A process in a real control group with a quota of one core uses one thread."""
    group = Path("/sys/fs/cgroup/cpu") / f"minintk{os.getpid()}"
    try:
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text("100000")
    except OSError:
        pytest.skip("no control group can be made here; the test above reads files of the same form")
    code = (
        f"import os, pathlib; pathlib.Path('{group}/cgroup.procs').write_text(str(os.getpid())); "
        "from minintk.cores import cores; print(cores())"
    )
    try:
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    finally:
        group.rmdir()
    assert found.strip() == "1"
