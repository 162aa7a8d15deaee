"""Test `undisturbed`: signal handlers find no half-loaded module, and interrupted imports and compilations continue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import product
from threading import Event, Thread, current_thread, enumerate, main_thread
from typing import Any

import pytest

from minintk.undisturbed import undisturbed
from tests.kit.thinned import thinned

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals of POSIX")


class Late(Exception):
    """The exception that a time limit raises."""


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Yield a function that installs a handler for SIGUSR1."""
    before = signal.getsignal(signal.SIGUSR1)

    def does(act: Callable[[], object]) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: act())

    yield does
    signal.signal(signal.SIGUSR1, before)


def interrupted(ran: list[str], go: Event) -> str:
    """Send this process a signal in the middle of the work, then finish the work."""
    os.kill(os.getpid(), signal.SIGUSR1)
    assert go.wait(60)
    ran.append("to the end")
    return "result"


def wait_for_all() -> None:
    for thread in enumerate():
        if thread.name == "minintk-undisturbed":
            thread.join(60)


def test_it_returns_and_raises_what_the_work_does() -> None:
    assert undisturbed(lambda: 3) == 3
    with pytest.raises(KeyError, match="x"):
        undisturbed(lambda: {}["x"])  # type: ignore[index]


def test_work_goes_on_when_a_handler_raises(on_signal: Any) -> None:
    def late() -> None:
        raise Late

    ran, go = list[str](), Event()
    on_signal(late)
    with pytest.raises(Late):
        undisturbed(lambda: interrupted(ran, go))
    assert ran == []
    go.set()
    wait_for_all()
    assert ran == ["to the end"]


def test_a_handler_may_ask_for_the_same(on_signal: Any) -> None:
    ran, go = list[str](), Event()

    def guest() -> None:
        ran.append(f"guest: {undisturbed(lambda: 'result')}")
        go.set()

    on_signal(guest)
    assert undisturbed(lambda: interrupted(ran, go)) == "result"
    assert ran == ["guest: result", "to the end"]


def test_other_threads_work_themselves() -> None:
    seen: list[bool] = []
    thread = Thread(target=lambda: undisturbed(lambda: seen.append(current_thread() is thread)))
    thread.start()
    thread.join()
    assert seen == [True]
    assert undisturbed(lambda: current_thread() is not main_thread())


FIRST_CALL = """
import os, signal, sys, numpy as np, minintk as mn
from minintk.thresholds import THRESHOLDS
THRESHOLDS.plain = THRESHOLDS.compiled = 0
net = mn.Network(mn.Sequential(mn.Conv2d(16), mn.ReLU(), mn.Conv2d(16), mn.Flatten(), mn.Dense(1)), (16, 16, 16))
theta, x = net.init(np.random.default_rng(0), dtype=np.float32), np.ones((8, 16, 16, 16), np.float32)
came = []
def late(*_):
    came.append(1)
    if sys.argv[2] == "raises":
        raise TimeoutError("late")
    net(theta, x)
signal.signal(signal.SIGUSR1, late)
class Finder:
    def find_spec(name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGUSR1)
sys.meta_path.insert(0, Finder)
try:
    net(theta, x)
    raised = False
except TimeoutError:
    raised = True
sys.meta_path.remove(Finder)
from minintk.fast.numba_here import loops
print(bool(came), raised == (sys.argv[2] == "raises"), loops() is not None)
"""


@pytest.mark.parametrize(
    ("module", "does"), thinned(product(("numba.core.types", "minintk.fast.numba_loops"), ("raises", "calls")))
)
def test_a_signal_in_the_first_use_of_numba(does: str, module: str) -> None:
    """A signal arrives while `module` is imported.

    An exception in the signal handler propagates, a nested call succeeds, and Numba still loads.
    """
    pytest.importorskip("numba")
    if find_spec("minintk.fast") is None:
        pytest.skip("the satellite of speed was taken away")
    command = [sys.executable, "-W", "error", "-c", FIRST_CALL, module, does]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    assert found.stdout.split() == ["True"] * 3, found.stdout + found.stderr
