"""Measure the cost of imports: the wall time of a new process that imports a library, including interpreter start."""

from __future__ import annotations

import os
import subprocess
import time

from environments import ROOT, python
from harness import Measured

STATEMENTS = (
    ("import minintk, analytic", "ours"),
    ("pass", "ours"),
    ("import numpy", "ours"),
    ("import torch", "torch"),
    ("import neural_tangents", "jax"),
)


def measure(environments: list[str], rounds: int) -> list[Measured]:
    """Time each statement once per round, always in a new process.

    A statement's first time is recorded separately, because the first process fills the file system's caches.
    """
    kept = [(statement, environment) for statement, environment in STATEMENTS if environment in environments]
    seen = [Measured(f"python -c '{statement}'", environment, None) for statement, environment in kept]
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
    for number in range(-1, rounds):
        for (statement, environment), one in zip(kept, seen, strict=True):
            if one.failed:
                continue
            started = time.perf_counter()
            done = subprocess.run([python(environment), "-c", statement], env=quiet, capture_output=True, text=True)
            if done.returncode != 0:
                one.failed = (done.stderr.strip().splitlines() or ["no message"])[-1]
            elif number < 0:
                one.first = time.perf_counter() - started
            else:
                one.seconds[number] = time.perf_counter() - started
    ours = seen[0].seconds
    for one in seen:
        one.ratios = [seconds / ours[number] for number, seconds in one.seconds.items() if number in ours]
    return seen
