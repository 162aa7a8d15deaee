"""Time the sides of a row in turns: A B C, then B C A, then C A B. Each side runs in one process for the whole row.

    row     one piece of work, with its inputs and a reference answer in float64 or in more digits
    side    one way to do the work, in one environment
    turn    an untimed call, then timed calls for a fraction of a second; the turn's time is the median of these calls
    ratio   a side's time / our time in the same round; the report lists its median over rounds, and an interval

Load on the machine and changes in its clock rate therefore affect both times of a ratio alike. A side's answer, if any,
is compared with the reference before any timing. If its error exceeds the row's tolerance, the side is marked wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import comb
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from environments import HERE, ROOT, python

Arrays = Mapping[str, Any]
"""Named host arrays: the inputs of a row, or its answer."""


@dataclass(frozen=True)
class Work:
    """A side's work on the inputs.

    `run` does the work once and waits until it is done. `answer` converts the result to arrays to compare with the
    row's reference. `answer` is None if the side does different work, so that only the time can be compared.
    """

    run: Callable[[], Any]
    answer: Callable[[Any], Arrays] | None


@dataclass(frozen=True)
class Side:
    """One way to do a row's work.

    make : a function (inputs, device) -> Work, called in a process of the side's environment. at_least : the target,
    the smallest accepted value of this side's time / our time. settings : environment variables for the process.
    """

    name: str
    environment: str
    make: Callable[[Arrays, str], Work]
    at_least: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One piece of work and the ways to do it. The first side is ours.

    inputs : () -> arrays. reference : a function that returns the correct answer for the inputs, in at least float64.
    tolerance : the largest allowed error, relative to the reference's largest entry. per : the number of units in one
    call, e.g. steps; times are per unit. flops, bytes, entries : the least work that one unit needs with the usual
    methods. flops : multiplications and additions of matrix products. bytes : bytes read and written. entries : kernel
    entries, each counted once for each activation that it passes through. neighbours : the number of other processes
    that keep the same cores busy during the measurement.
    """

    name: str
    inputs: Callable[[], Arrays]
    reference: Callable[[Arrays], Arrays]
    tolerance: float
    sides: tuple[Side, ...]
    per: int = 1
    unit: str = "call"
    flops: float = 0.0
    bytes: float = 0.0
    entries: float = 0.0
    neighbours: int = 0

    def limit(self, rates: Mapping[str, float]) -> float | None:
        """Return the least seconds per unit: the largest of flops, bytes and entries, each divided by its rate.

        Return None if the row does not say how much work it needs.
        """
        dtype = self.name.rsplit(", ", 1)[-1]
        work = {f"products, {dtype}": self.flops, "copies": self.bytes, f"roots, {dtype}": self.entries}
        return max((amount / rates[name] for name, amount in work.items() if amount), default=None)


@dataclass
class Measured:
    """Measurements of one side: seconds per unit in each round, ratios to our times, and results of the first call."""

    side: str
    environment: str
    at_least: float | None
    failed: str | None = None
    seconds: dict[int, float] = field(default_factory=dict)
    ratios: list[float] = field(default_factory=list)
    first: float = 0.0
    error: float | None = None
    right: bool = True
    dtype: str = ""
    peak: int | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def time(self) -> float | None:
        """Return the median over rounds of the seconds per unit."""
        return median(self.seconds.values()) if self.seconds else None

    @property
    def ratio(self) -> float | None:
        """Return the median over rounds of this side's time / our time."""
        return median(self.ratios) if self.ratios else None

    @property
    def interval(self) -> tuple[float, float]:
        """Return the k-th smallest and the k-th largest ratio, a confidence interval for the true median.

        With n rounds, the interval misses this median with probability 2 P(B < k), where B is the number of heads in n
        coin flips. We choose the largest k for which this is at most .07, or k = 1 if there is no such k. With up to
        eight rounds, the limits are the smallest and the largest ratio.
        """
        ordered, n, k = sorted(self.ratios), len(self.ratios), 1
        while 2 * sum(comb(n, heads) for heads in range(k + 1)) <= 0.07 * 2**n:
            k += 1
        return ordered[k - 1], ordered[-k]

    @property
    def met(self) -> bool | None:
        """True if the ratio meets the target, both rounded to two decimals.

        None if there is no target, no ratio or a wrong answer.
        """
        if self.at_least is None or self.ratio is None or not self.right:
            return None
        return round(self.ratio, 2) >= round(self.at_least, 2)


SLOW, VERY_SLOW = 2.0, 10.0
"""Times of a call in seconds. A side has three rounds if its calls take longer than SLOW, and two if they take longer
than VERY_SLOW. A turn has no untimed call if the first or the median call takes SLOW or more."""


BUSY_ROUNDS, BUSY_TURN = 3, 3
"""Factors for the number of rounds and the length of turns beside busy neighbours. A turn's time is then the mean over
its calls, because the system gives a core to one process after another for some milliseconds each."""


@contextmanager
def busy(neighbours: int, threads: int) -> Iterator[None]:
    """Run `neighbours` busy processes on the first `threads` cores while the context is active."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(neighbours)]
    try:
        if hasattr(os, "sched_setaffinity"):
            for one in spinning:
                os.sched_setaffinity(one.pid, sorted(os.sched_getaffinity(0))[:threads])
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def rates(threads: int) -> dict[str, float]:
    """Return this machine's rates on `threads` cores, in operations or bytes per second (see `ours.rates`)."""
    worker = Worker("ours", {}, threads)
    try:
        return worker.ask(do="rates", threads=threads)
    finally:
        worker.close()


class SideFailed(RuntimeError):
    """An error raised if a side cannot do its work. The message gives the reason."""


class Worker:
    """The process of one side. It runs worker.py and exchanges JSON objects with it, one per line."""

    def __init__(self, environment: str, settings: Mapping[str, str], threads: int) -> None:
        count = str(threads)
        pools = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), count)
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore", "JAX_PLATFORMS": "cpu"}
        path = {"PYTHONPATH": str(ROOT)} if environment == "ours" else {"PYTHONPATH": ""}
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the worker)
        self._process = subprocess.Popen(
            [python(environment), str(HERE / "worker.py"), count],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **pools, **quiet, **path, **settings},
        )

    def ask(self, timeout: float = 900.0, **request: Any) -> dict[str, Any]:
        """Send a request and return the reply.

        Raises SideFailed if the worker reports an error, ends or takes longer than `timeout` seconds.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late = threading.Timer(timeout, self._process.kill)
        late.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        finally:
            late.cancel()
        if not line:
            self._log.seek(0)
            last = (self._log.read().strip().splitlines() or ["no message"])[-1]
            raise SideFailed(f"the process ended, or took longer than {timeout:.0f} s: {last}")
        reply: dict[str, Any] = json.loads(line)
        if "failed" in reply:
            raise SideFailed(reply["failed"])
        return reply

    def close(self) -> None:
        """Kill the process and close its streams."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                stream.close()


def measure(
    row: Row, environments: Sequence[str], *, rounds: int, turn: float, threads: int, device: str, pause: float = 0.1
) -> list[Measured]:
    """Compare the sides that run in these environments with the reference, then time them in turns.

    Return a Measured for each such side. If a side fails, its error message is in `Measured.failed`.
    """
    sides = [side for side in row.sides if side.environment in environments]
    seen = [Measured(side.name, side.environment, side.at_least) for side in sides]
    workers: dict[int, Worker] = {}
    with tempfile.TemporaryDirectory() as folder:
        inputs, reference = Path(folder) / "inputs.npz", Path(folder) / "reference.npz"
        arrays = row.inputs()
        np.savez(inputs, **arrays)
        np.savez(reference, **row.reference(arrays))
        try:
            for i, side in enumerate(sides):
                workers[i] = Worker(side.environment, side.settings, threads)
                try:
                    reply = workers[i].ask(
                        do="prepare", row=row.name, side=side.name, device=device,
                        inputs=str(inputs), reference=str(reference),
                    )  # fmt: skip
                except SideFailed as error:
                    seen[i].failed = str(error)
                    workers.pop(i).close()
                    continue
                seen[i].first, seen[i].error, seen[i].dtype = reply["first"], reply["error"], reply["dtype"]
                seen[i].right = reply["error"] is None or reply["error"] <= row.tolerance
                seen[i].peak, seen[i].versions = reply["peak"], reply["versions"]
            middle: Callable[[Sequence[float]], float] = mean if row.neighbours else median
            turn, rounds = (BUSY_TURN * turn, BUSY_ROUNDS * rounds) if row.neighbours else (turn, rounds)
            with busy(row.neighbours, threads):
                for number in range(rounds):
                    order = sorted(workers)
                    for i in order[number % len(order) :] + order[: number % len(order)] if order else []:
                        taken = (seen[i].time or 0.0) * row.per
                        if number >= (2 if taken > VERY_SLOW else 3 if taken > SLOW else rounds):
                            continue
                        time.sleep(pause)  # lets the previous side's threads stop spinning
                        try:
                            reply = workers[i].ask(do="turn", seconds=turn, warm=max(seen[i].first, taken) < SLOW)
                            seen[i].seconds[number] = middle(reply["seconds"]) / row.per
                        except SideFailed as error:
                            seen[i].failed = str(error)
                            workers.pop(i).close()
        finally:
            for worker in workers.values():
                worker.close()
    ours = seen[0].seconds
    for other in seen:
        other.ratios = [seconds / ours[number] for number, seconds in other.seconds.items() if number in ours]
    return seen
