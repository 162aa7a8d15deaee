"""Test that a sweep with one worker starts no process, and that no process outlives its parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from minintk.lab.experiments.processes import processes

STARTER = """
import os, sys, time
from minintk.lab.experiments.processes import processes

if __name__ == "__main__":
    with processes(2) as executor:
        print(executor.submit(os.getpid).result(), flush=True)
        time.sleep(600)
"""


def alive(pid: int) -> bool:
    """True if the process is running. A zombie, which has ended but is still listed, does not count."""
    try:
        os.kill(pid, 0)
        return not Path("/proc/self/status").exists() or "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # which one depends on when the process ends
        return False


def test_one_process_is_this_one() -> None:
    with processes(1) as executor:
        assert executor is None


def test_workers_end_when_their_starter_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "starter.py"
    script.write_text(STARTER)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        worker = int(starter.stdout.readline())
        assert alive(worker)
        starter.kill()
    end = time.monotonic() + 30
    while alive(worker):
        assert time.monotonic() < end
        time.sleep(0.1)
