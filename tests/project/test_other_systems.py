"""Test that writing files, measuring memory and setting limits need no feature that macOS or Windows lacks."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minintk.grade import wall
from minintk.lab import cli

ROOT = Path(__file__).resolve().parents[2]

ABSENT = (
    "O_DIRECTORY", "fork", "forkpty", "getuid", "geteuid", "getpgid", "kill", "killpg", "nice",
    "posix_fallocate", "posix_spawn", "register_at_fork", "sched_getaffinity", "setsid", "sysconf", "waitpid",
)  # fmt: skip
"""Names of `os` that Windows or macOS lacks or limits."""

WORK = """
    import builtins, io, os, pathlib, sys
    import filelock, matplotlib, numpy, scipy.linalg, threadpoolctl  # their own ways for this system
    if hasattr(threadpoolctl, "find_library"):  # older ones call ldconfig for it, on Linux
        libc = threadpoolctl.find_library("c")
        threadpoolctl.find_library = lambda name: libc
    for name in {absent}:
        if hasattr(os, name):
            delattr(os, name)
    for name in ("grp", "pwd", "resource", "termios"):
        sys.modules[name] = None
    for home, name in ((builtins, "open"), (io, "open"), (os, "stat"), (os, "listdir")):
        def refused(path, *args, plain=getattr(home, name), **more):
            if str(path).startswith(("/proc", "/sys", "/dev/shm")) and path != "/proc/self/maps":  # threadpoolctl's
                raise FileNotFoundError(path)
            return plain(path, *args, **more)
        setattr(home, name, refused)

    import numpy as np, minintk as mn, analytic as an
    from minintk.arrays import available_memory
    from minintk.grade.wall import limit

    folder, rng = pathlib.Path(sys.argv[1]), np.random.default_rng(0)
    x, y = rng.standard_normal((40, 5)), rng.standard_normal((40, 1))
    spec = mn.Sequential(mn.Dense(8, b_std=0.1), mn.ReLU(), mn.Dense(1))
    net = mn.Network(spec, (5,))
    how = dict(loss=mn.mse, optimizer=mn.SGD(lr=0.1), epochs=2, batch_size=10, checkpoint=folder / "run")
    first = mn.fit(net, net.init(rng), x, y, rng=np.random.default_rng(1), **how)
    kernel = an.kernel(spec)
    solved = an.solve(kernel, x, y, ridge=0.1, store=folder / "store").predict(x)
    assert np.allclose(solved, an.posterior(kernel, x, y, ridge=0.1, kind="ntk").predict(x))
    assert available_memory(np) > 0
    limit(AS=2**30, CPU=60)
    print("done")
"""


def test_nothing_needs_what_other_systems_lack(tmp_path: Path) -> None:
    lines = WORK.format(absent=ABSENT).splitlines()
    code = "\n".join(line.removeprefix("    ") for line in lines)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


def test_a_name_that_is_needed_is_missed() -> None:
    """Negative control: on Linux, `subprocess` needs names in ABSENT and fails without them."""
    code = f"import os\nfor name in {ABSENT}:\n    delattr(os, name)\nimport subprocess\nsubprocess.run(['true'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "AttributeError" in done.stderr or os.name == "nt"


def test_a_limit_that_a_system_refuses_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit is skipped if setting the limit raises ValueError, as setrlimit(RLIMIT_AS) does on macOS."""
    resource: Any = pytest.importorskip("resource")
    asked: list[int] = []

    def refused(kind: int, limits: tuple[int, int]) -> None:
        asked.append(kind)
        if kind == resource.RLIMIT_AS:
            raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refused)
    wall.limit(AS=2**30, CPU=60, FSIZE=2**26, CORE=0)
    assert asked == [resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE]


def test_a_console_without_greek_gets_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Characters that a pipe cannot encode are replaced by "?". On Windows, pipes often use cp1252."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setitem(cli.COMMANDS, "doctor", (lambda _: print("‖Θ̂ − Θ‖") or 0, "", "", ()))
    assert cli.main(["doctor"]) == 0
    out.flush()
    assert out.buffer.getvalue().split() == [b"???", b"?", b"??"]
