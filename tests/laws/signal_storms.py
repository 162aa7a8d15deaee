"""Interrupt public calls with storms of signals.

    python3 make.py python tests/laws/signal_storms.py 10000 [seed]

A storm is one call of a host (see `tests/kit/guests.py`), during which SIGALRM and SIGUSR1 can arrive at random times.
SIGALRM's handler raises an error, as a time limit does. SIGUSR1's handler calls the library, as a progress report does.
The call must return its usual result, bit for bit, or raise the error. The next call must return its usual result, and
the state must be the same as before the storm. The exit status is 1 if any storm fails or takes a minute.
"""

from __future__ import annotations

import faulthandler
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from minintk.threads import parallel
from tests.kit.guests import Late, hosts, left, settled

HANG = 60
"""The time in seconds after which a storm counts as hanging."""


def limited(host: Callable[[], Any]) -> Any:
    """Call the host. The handler of SIGALRM raises the error only inside this call."""
    return host()


def storms(count: int, seed: int) -> Counter[str]:
    """Run `count` storms and count each outcome. Outcomes that begin with "wrong" are failures."""
    draw, seen = random.Random(seed), Counter[str]()
    with hosts() as (all_hosts, guests):
        right = {name: host() for name, host in all_hosts.items()}
        known, depth = {name: guest() for name, guest in guests.items()}, [0]
        seconds = {}
        for name, host in all_hosts.items():
            start = time.perf_counter()
            host()
            seconds[name] = time.perf_counter() - start

        def late(_: int, frame: FrameType | None) -> None:
            """Raise Late only inside the host's call, because the timer can still run for a while after the call."""
            while frame is not None and frame.f_code is not limited.__code__:
                frame = frame.f_back
            if frame is not None:
                raise Late

        def report(*_: object) -> None:
            if depth[0] == 2:
                return
            depth[0] += 1
            try:
                name = draw.choice(list(guests))
                seen["reports"] += 1
                if guests[name]() != known[name]:
                    seen[f"wrong report: {name}"] += 1
            finally:
                depth[0] -= 1

        old = signal.signal(signal.SIGALRM, late), signal.signal(signal.SIGUSR1, report)
        before, main, over = left(), threading.main_thread().ident, threading.Event()
        reporting = threading.Event()
        assert main is not None

        def send() -> None:
            times = random.Random(seed + 1)
            while not over.is_set():
                time.sleep(times.expovariate(200))
                if reporting.is_set():
                    signal.pthread_kill(main, signal.SIGUSR1)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        before = left()
        try:
            for _ in range(count):
                faulthandler.dump_traceback_later(HANG, exit=True)
                name = draw.choice(list(all_hosts))
                found, limit = None, draw.random() < 0.7
                if draw.random() < 0.5:
                    reporting.set()
                try:
                    try:
                        if limit:
                            signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 1.2 * seconds[name]), 0.003)
                        found = limited(all_hosts[name])
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except* Late:  # also as a group: filelock's cleanup can be interrupted, too
                    seen["interrupted"] += 1
                reporting.clear()
                depth[0] = 0
                if found is not None and found != right[name]:
                    seen[f"wrong bits: {name}"] += 1
                again = draw.choice(list(all_hosts))
                if all_hosts[again]() != right[again]:
                    seen[f"wrong bits of the next call: {again}, after {name}"] += 1
                parallel(abs, [0, 1])  # a call of `parallel` repairs the state, and some hosts never call `parallel`
                np.seterr(**before["errors"])  # an exception inside errstate.__exit__ leaves NumPy's settings changed
                for what in settled(before):
                    seen[f"wrong: {what} changed by {name}"] += 1
                seen["storms"] += 1
        finally:
            faulthandler.cancel_dump_traceback_later()
            over.set()
            sender.join()
            signal.signal(signal.SIGALRM, old[0])
            signal.signal(signal.SIGUSR1, old[1])
    return seen


if __name__ == "__main__":
    found = storms(int(sys.argv[1]) if sys.argv[1:] else 1000, int(sys.argv[2]) if sys.argv[2:] else 0)
    print(dict(found))
    sys.exit(any(what.startswith("wrong") for what in found))
