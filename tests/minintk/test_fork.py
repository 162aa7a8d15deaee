"""Test a fork while the pool is working: the child can run two items in parallel, and BLAS regains all its threads."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import os, sys, threading, time, warnings
    import numpy as np
    from minintk import threads

    warnings.simplefilter("ignore")                      # Python 3.12 warns of a fork with threads
    threads.cores = lambda: 2                            # a machine with one core has a pool too
    blas = lambda: {library.num_threads for library in threads.blas_libraries()}
    before, begun, go = blas(), threading.Event(), threading.Event()

    def wait(_):
        begun.set()
        go.wait(60)

    other = threading.Thread(target=threads.parallel, args=(wait, range(2)))
    other.start()
    begun.wait(60)
    assert blas() == {1}                                 # held by the other thread
    child = os.fork()
    if child == 0:
        status = 1
        try:
            meet = threading.Barrier(2, timeout=float(sys.argv[1]))  # passes only if two items run at once
            assert blas() == before
            names = threads.parallel(lambda _: (meet.wait(), threading.current_thread().name)[1], range(2))
            with threads.single_threaded_blas():
                held = blas() == {1}
            status = 0 if held and blas() == before and len(set(names)) == 2 else 2
        finally:
            os._exit(status)
    go.set()
    other.join()
    assert blas() == before                              # the parent is as it was
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def outcome(hook: str, seconds: int) -> int:
    """Return the exit status of `hook` followed by SCRIPT, whose two items must overlap within `seconds`."""
    script = textwrap.dedent(hook) + textwrap.dedent(SCRIPT)
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-c", script, str(seconds)]
    return subprocess.run(command, env=environment, timeout=300, check=False).returncode


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_the_child_of_a_fork_is_parallel_again() -> None:
    assert outcome("", 60) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_without_the_hook_it_would_not_be() -> None:
    """Negative control: without the hooks of `os.register_at_fork`, the script fails."""
    assert outcome("import os; os.register_at_fork = lambda **_: None", 2) != 0
