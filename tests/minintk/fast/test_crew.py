"""Compiled loops on all cores: those alone, the same at every call; nobody waits for a thread that does not come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from small_is_large import small_is_large

import minintk as mn
from minintk.fast import threads
from minintk.fast.board import CAME, LEFT, board
from minintk.fast.door import shut
from minintk.fast.spread import spread
from minintk.fast.thresholds import THRESHOLDS
from minintk.testing import assert_close, roundings

direct: Any = pytest.importorskip("minintk.fast.direct")
crew: Any = pytest.importorskip("minintk.fast.crew")
RNG = np.random.default_rng


@pytest.fixture(autouse=True)
def patch() -> Iterator[pytest.MonkeyPatch]:
    """Threads that stay awake until they are sent home, so that they take part."""
    with small_is_large(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(THRESHOLDS, "looks", 2**40)
        send_home()
        yield patch
        send_home()


def send_home() -> None:
    """A thread that looks for loops comes to `parallel`."""
    meet = threading.Barrier(2, timeout=10)
    threads.parallel(lambda _: meet.wait(), range(2))
    assert board()[CAME] == board()[LEFT]


def normal(shape: Any, dtype: Any = np.float32, seed: int = 0) -> Any:
    return RNG(seed).standard_normal(shape).astype(dtype)


def pixels(n: int, before: int) -> Any:
    return np.array([[before, 0, n]])


def convolution(N: int, dtype: Any, b: str = "bias") -> tuple[Any, ...]:
    """The arguments of `correlate` for N images of 7 x 5 pixels with a frame of one pixel."""
    x, W, frame = normal((N, 7, 5, 3), dtype), normal((3, 2, 3, 16), dtype), (9, 7, pixels(7, 1), pixels(5, 1))
    before = normal(3, dtype), normal(3, dtype, 1), dtype(0)
    start = {"bias": normal(16, dtype), "onto": normal((N, 7, 6, 16), dtype).ravel()}[b]
    return x, frame, before, W, (1, 1), start, np.full((N, 7, 6, 16), np.nan, dtype), (0, 0, 1, 1)


def norm(M: int, dtype: Any, onto: bool) -> tuple[Any, ...]:
    """The arguments of `centre` for M rows of 24 numbers and a row of 8."""
    a, b = normal(M * 24 + 8, dtype), normal(M * 24 + 8, dtype, 1)
    columns = (normal(24, dtype, seed) for seed in range(4))
    mean, other, slope, r = columns
    return a, mean, b, other, slope, r, dtype(0.2), normal(a.shape if onto else 0, dtype, 5)


def calls(dtype: Any) -> dict[str, tuple[Any, tuple[Any, ...], int]]:
    """By name: the loop, its arguments, and the place of that one which it writes to."""
    found: dict[str, tuple[Any, tuple[Any, ...], int]] = {}
    for N in (1, 2, 3, 20):
        x, frame, before, _, stride, *_ = convolution(N, dtype)
        dW = np.zeros((1, 1, 3, 2, 3, 16), dtype)
        for b in ("bias", "onto"):
            found[f"correlate {N} {b}"] = direct.correlate, convolution(N, dtype, b), 6
        u = normal((1, N, 7, 6, 16), dtype)
        found[f"gradient {N}"] = direct.add_gradient, (x, frame, before, u, stride, dW), 5
        for onto in (False, True):
            found[f"centre {N} {onto}"] = direct.centre, norm(N, dtype, onto), 0
        a, mean, b, other, *_ = norm(100 * N, dtype, False)
        found[f"sums {N}"] = direct.column_sums, (a, mean, b, other, dtype(0.2), np.zeros((2, 24))), 5
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_loop_on_all_cores_is_the_loop_alone(dtype: Any) -> None:
    came = board()[CAME]
    for name, (loop, args, at) in calls(dtype).items():
        results = []
        for worth in (False, *[True] * 10):
            written = args[at].copy()
            spread(loop, worth, *args[:at], written, *args[at + 1 :])
            results.append(written)
        alone, first, *others = results
        assert all(np.array_equal(first, other) for other in others), name  # no matter who took which piece
        sums = loop in (direct.add_gradient, direct.column_sums)
        tolerance = 20 * np.finfo(dtype).eps * float(np.abs(alone).max()) if sums else 0.0
        assert_close(name, first, alone, tolerance)
    assert board()[CAME] == came + 1  # one thread, awake from the first loop to the last


def test_a_piece_left_out_is_refused() -> None:
    """Negative control: one of eight pieces is not done."""
    loop, args, _ = calls(np.float32)["correlate 20 bias"]
    spread(loop, False, *args)
    right = args[6].copy()
    args[6][-2:] = np.nan
    with pytest.raises(AssertionError):
        assert_close("correlate", args[6], right, 0.0)


@pytest.mark.parametrize("norm", [True, False], ids=["BatchNorm", "without"])
def test_networks_whose_loops_are_spread(norm: bool, patch: pytest.MonkeyPatch) -> None:
    """Outputs and derivatives, the batch in one piece."""
    patch.setattr(THRESHOLDS, "batch", 2**62)
    before = (mn.BatchNorm(eps=0.01), mn.ReLU()) if norm else (mn.ReLU(),)
    branch = mn.Sequential(*before, mn.Conv2d(32, 3), *before, mn.Conv2d(16, (1, 3)))
    spec = mn.Sequential(mn.Conv2d(16, 3), mn.Residual(branch), *before, mn.Conv2d(16, 3, stride=2), mn.Flatten(),
                         mn.Dense(2))  # fmt: skip
    with shut():
        plain = mn.Network(spec, (6, 5, 2))
    theta, x, found = plain.init(RNG(0)), RNG(1).standard_normal((7, 6, 5, 2)), []
    came = board()[CAME]
    for net in (plain, mn.Network(spec, (6, 5, 2))):
        f, J = net.linearize(theta, x)
        found.append([f, J.jvp(normal(net.size, np.float64)), J.vjp(normal(f.shape, np.float64))])
    assert board()[CAME] > came
    tolerance = 50 * roundings(plain, theta, x)
    for i, (a, b) in enumerate(zip(*found, strict=True)):
        assert_close(f"map {i}", a, b, tolerance * float(np.abs(a).max()))


def test_nobody_waits_for_threads_that_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """None can start; the pool works for another thread; or the caller is in the pool."""
    loop, args, _ = calls(np.float32)["correlate 20 bias"]
    spread(loop, False, *args)
    right, came = args[6].copy(), board()[CAME]

    def refused(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    def again(_: int = 0) -> None:
        args[6][...] = np.nan
        spread(loop, True, *args)
        assert np.array_equal(args[6], right)

    with monkeypatch.context() as patch:
        patch.setattr(ThreadPoolExecutor, "submit", refused)
        again()
    with monkeypatch.context() as patch:
        patch.setitem(threads._user, "pool", -1)
        again()
    with threads.alone():
        again()
    assert board()[CAME] == came == board()[LEFT]
    again()
    assert board()[CAME] == came + 1


def test_who_looks_for_loops_leaves_for_other_work() -> None:
    """Both threads of `parallel` come, while the pool's only one would go on looking for a second."""
    loop, args, _ = calls(np.float32)["correlate 20 bias"]
    for _ in range(3):
        spread(loop, True, *args)
        assert board()[CAME] == board()[LEFT] + 1
        send_home()


def test_too_little_memory_for_a_canvas_is_said() -> None:
    """Whichever thread it is that finds none."""
    x, _, *rest = convolution(2, np.float32)
    with pytest.raises(MemoryError, match="smaller batches"):
        spread(direct.correlate, True, x, (2**24, 2**24, pixels(7, 1), pixels(5, 1)), *rest)
    loop, args, _ = calls(np.float32)["correlate 2 bias"]
    spread(loop, True, *args)
    assert np.isfinite(args[6]).all()


def test_an_interrupt_while_a_thread_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes when the thread is on its way, and counted."""
    loop, args, _ = calls(np.float32)["correlate 20 bias"]
    right, main = Future.__init__, threading.main_thread()

    def interrupted(self: Any) -> None:
        if threading.current_thread() is main:
            signal.raise_signal(signal.SIGINT)
        right(self)

    with monkeypatch.context() as patch:
        patch.setattr(Future, "__init__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            spread(loop, True, *args)
    assert board()[CAME] == board()[LEFT] + 1
    spread(loop, True, *args)
    assert board()[CAME] == board()[LEFT] + 1


SCRIPT = """
    import os, sys, warnings
    import numpy as np
    from minintk.fast import direct, threads
    from minintk.fast.board import CAME, board
    from minintk.fast.spread import spread

    warnings.simplefilter("ignore")                      # Python 3.12 warns of a fork with threads
    threads.cores = lambda: 2
    x, one = np.ones((40, 8, 8, 16), np.float32), np.array([[0, 0, 8]])
    args = x, (8, 8, one, one), (x[0, 0, 0, :0], x[0, 0, 0, :0], x[0, 0, 0, 0]), np.ones((3, 3, 16, 16), np.float32)

    def right():
        y = np.zeros((40, 6, 6, 16), np.float32)
        spread(direct.correlate, True, *args, (1, 1), np.zeros(16, np.float32), y, (0, 0, 1, 1))
        return (y == 144).all() and board()[CAME] == 1

    done = right()                                       # a thread of the parent looks at the parent's board
    child = os.fork()
    if child == 0:
        os._exit(0 if right() else 2)
    sys.exit(not done or os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_the_child_of_a_fork_has_a_board_and_threads_of_its_own() -> None:
    script = textwrap.dedent(SCRIPT)
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0
