"""Test the guest law: a public call may run inside any other in its thread, and an exception may end any call.

A tracer stops the outer call (the host) at its k-th line in `minintk` or `analytic`. The tracer then makes other calls,
the guests, as a signal handler, a callback or a finalizer would, or raises an error, as a time limit would. Guests and
errors must not change the results of host and guests (bit by bit), the number of BLAS threads, the pool's marks and
jobs, signal handlers, NumPy's settings, or the running threads.
"""

from __future__ import annotations

import hashlib
import linecache
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import analytic as an
import minintk as mn
from minintk import threads
from minintk.training.train import Descent
from tests.kit.small_is_large import small_is_large

HERE = tuple(str(Path(package.__file__).parent) for package in (mn, an) if package.__file__)
RNG = np.random.default_rng

Host = Callable[[], str]
STORES = find_spec("analytic.large") is not None
"""False if the package `analytic.large`, which provides stores, is missing."""


class Late(Exception):
    """The error that a simulated time limit raises."""


def digest(*arrays: Any) -> str:
    """Return a hash of the bits of some arrays."""
    found = hashlib.sha256()
    for a in arrays:
        found.update(np.ascontiguousarray(a).tobytes())
    return found.hexdigest()


LAYERS = mn.Conv2d(4, 3), mn.ReLU(), mn.MaxPool(2), mn.Conv2d(16, 3), mn.BatchNorm(), mn.ReLU(), mn.Conv2d(16, 3)
SPEC = mn.Sequential(*LAYERS[:4], mn.ReLU(), *LAYERS[6:], mn.Flatten(), mn.Dense(8), mn.Erf(), mn.Dense(3))
COUPLED = mn.Sequential(*LAYERS, mn.GlobalAvgPool(), mn.Dense(3))
POINTS = mn.Sequential(mn.Dense(8), mn.ReLU(), mn.Dense(8), mn.Erf(), mn.Dense(1))
PIXELS = mn.Sequential(mn.Conv2d(4), mn.ReLU(), mn.AvgPool(2), mn.Conv2d(4), mn.Erf(), mn.GlobalAvgPool(), mn.Dense(1))


@contextmanager
def hosts() -> Iterator[tuple[dict[str, Host], dict[str, Host]]]:
    """Yield ({name: host}, {name: guest}). The thresholds are low, so that even small tasks use the pool."""
    x, rows = RNG(0).standard_normal((6, 8, 8, 2)), RNG(1).standard_normal((250, 5))
    y, other = np.eye(3)[np.arange(6) % 3], RNG(3).standard_normal((6, 8, 8, 2))
    with small_is_large(), tempfile.TemporaryDirectory() as folder:
        net, coupled = mn.Network(SPEC, (8, 8, 2)), mn.Network(COUPLED, (8, 8, 2))
        theta, phi = net.init(RNG(4)), coupled.init(RNG(5), dtype=np.float32)
        points, pixels = an.kernel(POINTS), an.kernel(PIXELS)

        def pool() -> str:
            return digest(*threads.parallel(lambda i: np.sort(rows[i::4], axis=0), range(4)))

        def step() -> str:
            run = Descent(net, theta, x, y, mn.mse, mn.SGD(0.01, momentum=0.9), 1)
            f, _ = run.advance()
            return digest(run.theta, f)

        def train(model: mn.Network, at: Any) -> str:
            batch, targets = x.astype(at.dtype), y.astype(at.dtype)
            loss, optimizer = mn.softmax_cross_entropy, mn.SGD(0.01, momentum=0.9)
            *_, last = mn.train(model, at, batch, targets, loss=loss, optimizer=optimizer, steps=2, every=2)
            return digest(last.theta, last.f)

        def fit() -> str:
            found = mn.fit(
                net, theta, x, y, loss=mn.mse, optimizer=mn.Adam(1e-3), epochs=2, batch_size=3, rng=RNG(6),
            )  # fmt: skip
            return digest(found.theta)

        def store() -> str:
            return digest(points.ntk(rows[:40], store=Path(tempfile.mkdtemp(dir=folder)) / "k"))

        all_hosts = {
            "pool": pool,
            "step": step,
            "train": lambda: train(net, theta),
            "train a coupled batch": lambda: train(coupled, phi),
            "fit": fit,
            "empirical kernel": lambda: digest(mn.ntk(net, theta, x)),
            "kernel of points": lambda: digest(*points.both(rows)),
            "kernel of images": lambda: digest(*pixels.both(x)),
        } | ({"store": store} if STORES else {})
        guests = {
            "network": lambda: digest(net(theta, other)),
            "coupled network": lambda: digest(coupled(phi, other.astype(np.float32))),
            "kernel": lambda: digest(points.ntk(rows[:60])),
            "pool": pool,
        }
        yield all_hosts, guests


def left() -> dict[str, Any]:
    """Return the global state that a call must leave unchanged."""
    jobs = getattr(getattr(threads, "_own", None), "__dict__", {}).get("jobs")
    return {
        "BLAS's threads": [library.num_threads for library in threads.blas_libraries()],
        "inside the pool": threads.inside(),
        "unfinished jobs": len(jobs or ()),
        "handlers": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGALRM, signal.SIGUSR1)],
        "errors": np.geterr(),
        "buffer": np.getbufsize(),
        "threads": {*threading.enumerate()},
    }


def settled(before: dict[str, Any], patience: int = 60_000) -> dict[str, Any]:
    """Return how the state differs from `before`, after waiting for at most `patience` milliseconds.

    The wait is only about 200 milliseconds if there are no new threads to wait for.
    """
    for waited in range(patience):
        after = left()
        after["threads"] |= before["threads"]  # threads of earlier tests may end meanwhile
        if after == before:
            return {}
        if waited > 200 and after["threads"] == before["threads"]:
            break
        time.sleep(0.001)
    return {name: (before[name], value) for name, value in after.items() if value != before[name]}


INLINED = sys.version_info[:2] in ((3, 12), (3, 13))
"""True on Python 3.12 and 3.13: a tracer's error at the backward jump of an inlined comprehension skips `__exit__`.

Errors of signal handlers do not skip `__exit__` there.
"""

stops: list[str] = []
"""The source line at which the tracer last stopped a host."""


def stopped(host: Host, k: int, action: Callable[[], None], where: Callable[[FrameType], bool]) -> tuple[str, int]:
    """Run a host, and call `action` at its k-th line that satisfies `where`. Return (host's bits, lines counted)."""
    count, before = [0], dict[FrameType, int]()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        if event == "return":
            before.pop(frame, None)
        back, before[frame] = before.get(frame, 0) >= frame.f_lineno, frame.f_lineno
        # Skip the way back from a body to `with`, before `__exit__`: a tracer can stop there, but no signal can.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        leaves = back and (INLINED or line.lstrip().startswith("with "))
        if event == "line" and not leaves and where(frame):
            count[0] += 1
            if count[0] == k:
                sys.settrace(None)
                frame.f_trace = None
                before.clear()
                stops[:] = [f"line {k}, {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"]
                action()
        return trace

    sys.settrace(trace)
    try:
        found = host()
    finally:
        sys.settrace(None)
        before.clear()
    return found, count[0]


CLEANING = {"wait", "end", "__exit__", "_leave"}
"""Functions in `minintk.threads` that clean up. The next call repairs the state that an exception in them leaves."""


def cleaning(frame: FrameType) -> bool:
    """Return True if the frame of `minintk.threads` is in a function of CLEANING, or at `finally:` or `job.end()`."""
    if frame.f_code.co_filename != threads.__file__:
        return False
    line = linecache.getline(threads.__file__, frame.f_lineno).strip()
    return frame.f_code.co_name in CLEANING or line in ("finally:", "job.end()")


def working(frame: FrameType) -> bool:
    """Return True if the frame is not cleaning up (see `cleaning`)."""
    return not cleaning(frame)


def guest_inside(host: Host, right: str, guests: dict[str, tuple[Host, str]], k: int) -> int:
    """Call all guests at the host's k-th line, which may lie in a clean-up block, and check results and state.

    Return the number of lines counted: k, or less if the host has fewer lines.
    """
    before, wrong = left(), list[str]()

    def call() -> None:
        wrong.extend(name for name, (guest, bits) in guests.items() if guest() != bits)

    found, count = stopped(host, k, call, lambda frame: True)
    assert not wrong, f"{stops}: guests with other bits: {wrong}"
    assert found == right, f"{stops}: the host has other bits"
    assert not (changed := settled(before)), f"{stops}: {changed}"
    return count


def left_by_error(host: Host, right: str, k: int, where: Callable[[FrameType], bool] = working) -> int:
    """Raise an error at line k of the host, and check the state and the result of the next call.

    Return the number of lines counted, at most k, or 0 if the error ended the host.
    """
    before, count = left(), 0

    def late() -> None:
        raise Late

    try:
        found, count = stopped(host, k, late, where)
    except Late:
        pass
    else:
        assert found == right, f"{stops}: an error was swallowed, and the host has other bits"
    if where is working:
        assert not (changed := settled(before)), f"{stops}: {changed}"
    assert host() == right, f"{stops}: the next call has other bits"
    assert not (changed := settled(before)), f"{stops}, after the next call: {changed}"
    return count
