"""Test how much memory a call may use, given the free memory and the limits of control groups in temporary files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from minintk import arrays

MB = 2**20


@pytest.fixture(autouse=True)
def forget() -> None:
    arrays.limited_groups.cache_clear()


def tree(root: Path, mount: str, groups: str, files: Mapping[str, object]) -> Path:
    """Write the mount table, the process's control groups and `files` below `root`, and return `root`."""
    for name, content in {"proc/self/mountinfo": mount, "proc/self/cgroup": groups, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{content}\n")
    return root


V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"
V1 = """35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"""


def test_the_least_of_nested_groups_counts(tmp_path: Path) -> None:
    """Among nested groups, the least free memory counts. Here, a SLURM job has a memory limit but its step has none.

    The word "max" means unlimited. Page cache that can be dropped does not count as used.
    """
    job = "sys/fs/cgroup/slurm/job_7"
    files = {
        "sys/fs/cgroup/slurm/memory.max": 900 * MB,
        "sys/fs/cgroup/slurm/memory.current": 100 * MB,
        f"{job}/memory.max": 500 * MB,
        f"{job}/memory.current": 300 * MB,
        f"{job}/memory.stat": f"anon {200 * MB}\ninactive_file {60 * MB}",
        f"{job}/step_0/memory.max": "max",
        f"{job}/step_0/memory.current": 250 * MB,
    }
    assert arrays.free_in_groups(tree(tmp_path, V2, "0::/slurm/job_7/step_0", files)) == 260 * MB
    (tmp_path / job / "memory.current").write_text(str(800 * MB))  # used more than the limit: 0 bytes are left
    assert arrays.free_in_groups(tmp_path) == 0


def test_the_outer_group_may_be_the_tighter_one(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/a/memory.max": 100 * MB, "sys/fs/cgroup/a/b/memory.max": 900 * MB}
    assert arrays.free_in_groups(tree(tmp_path, V2, "0::/a/b", files)) == 100 * MB


def test_high_throttles_before_max(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/a/memory.max": 100 * MB, "sys/fs/cgroup/a/memory.high": 70 * MB}
    assert arrays.free_in_groups(tree(tmp_path, V2, "0::/a", files)) == 70 * MB


def test_version_one(tmp_path: Path) -> None:
    """Version 1 of control groups stores limits in other files, and "no limit" as a number near 2**63."""
    top = "sys/fs/cgroup/memory"
    files = {
        f"{top}/memory.limit_in_bytes": 9223372036854771712,
        f"{top}/docker/x/memory.limit_in_bytes": 400 * MB,
        f"{top}/docker/x/memory.usage_in_bytes": 100 * MB,
        f"{top}/docker/x/memory.stat": f"inactive_file 5\ntotal_inactive_file {30 * MB}",
        "sys/fs/cgroup/cpu/docker/x/memory.limit_in_bytes": 1,  # not the memory controller's folder
    }
    groups = "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n0::/"
    assert arrays.free_in_groups(tree(tmp_path, V1, groups, files)) == 330 * MB


@pytest.mark.parametrize("root", ["/docker/x", "/elsewhere"])
def test_a_container_sees_a_part_of_the_tree(tmp_path: Path, root: str) -> None:
    """If the mount's root is the process's own group or an unrelated group, the limit in the mount's root applies."""
    mount = f"35 31 0:32 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
    files = {"sys/fs/cgroup/memory.max": 100 * MB}
    assert arrays.free_in_groups(tree(tmp_path, mount, "0::/docker/x", files)) == 100 * MB


def test_no_limit_no_groups_and_nonsense(tmp_path: Path) -> None:
    assert arrays.free_in_groups(tmp_path) == 2**62
    files = {"sys/fs/cgroup/a/memory.max": "max", "sys/fs/cgroup/memory.max": "nonsense"}
    assert arrays.free_in_groups(tree(tmp_path, V2, "0::/a", files)) == 2**62


def test_kernels_are_bounded_by_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    import minintk as mn
    from analytic import kernel

    k, x = kernel(mn.Sequential(mn.Dense(4), mn.ReLU(), mn.Dense(1))), np.eye(2100, 3)
    k.ntk(x[:40])
    monkeypatch.setattr("minintk.arrays.free_in_groups", lambda: 20_000)
    k.ntk(x[:40])  # for a small kernel, free memory is not looked up
    with pytest.raises(MemoryError, match="2e-05 GB are free"):
        k.ntk(x)


def test_where_the_system_is_not_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing, pages = tmp_path / "meminfo", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr("os.sysconf", pages.__getitem__, raising=False)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert arrays.free_host_memory(missing) == 4096000
    monkeypatch.delattr("os.sysconf")
    assert arrays.free_host_memory(missing) == 2**62


def test_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel32:
        def GlobalMemoryStatusEx(self, status: object) -> int:
            assert status[0] == 64  # type: ignore[index]
            status[2] = 123 * MB  # type: ignore[index]
            return 1

    class Libraries:
        kernel32 = Kernel32()

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr("ctypes.windll", Libraries(), raising=False)
    assert arrays.free_host_memory(tmp_path / "meminfo") == 123 * MB
