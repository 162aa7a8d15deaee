"""Run in the process of one side: read requests, one JSON object per line, and reply to each with one line.

- prepare: load the inputs, build the `Work` and run it twice, or once if that takes 10 s or more. The reply contains
  the first call's time (including compilation) and error, and the last call's peak memory
- rates: measure the rates of the machine (`ours.rates`)
- answer: build the `Work`, run it once and save its answer, for rows that measure accuracy
- turn: make one untimed call (if requested), then timed calls until their times add up to the given seconds
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

PACKAGES = ("numpy", "scipy", "numba", "cupy-cuda12x", "jax", "jaxlib", "neural-tangents", "torch")


def build(request: dict[str, Any]) -> Any:
    """Return the `Work` for the requested row and side."""
    import numpy as np
    from rows import ROWS

    side = next(side for side in ROWS[request["row"]].sides if side.name == request["side"])
    return side.make(dict(np.load(request["inputs"])), request["device"])


def prepare(request: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the reply to the request `prepare`, and the `Work`."""
    import numpy as np
    from harness import VERY_SLOW

    work = build(request)
    gc.collect()
    held = resident()
    reset_peak()
    started = time.perf_counter()
    result = work.run()
    first = time.perf_counter() - started
    error, dtype = compare(work.answer(result), np.load(request["reference"])) if work.answer else (None, "")
    del result
    gc.collect()
    if first < VERY_SLOW:
        reset_peak()
        work.run()
    peak = peak_resident()
    memory = peak - held if peak is not None and held is not None and request["device"] == "cpu" else None
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"first": first, "error": error, "dtype": dtype, "peak": memory, "versions": versions}, work


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run the `Work` once and save its answer."""
    import numpy as np

    work = build(request)
    np.savez(request["answer"], **work.answer(work.run()))
    return {}


def turn(work: Any, seconds: float, warm: bool) -> list[float]:
    """Return the times of calls that take `seconds` or more in total. If `warm`, make an untimed call first."""
    if warm:
        work.run()
    gc.collect()
    gc.disable()
    times: list[float] = []
    while sum(times) < seconds:
        started = time.perf_counter()
        result = work.run()
        times.append(time.perf_counter() - started)
        del result
    gc.enable()
    return times


def compare(answer: Any, reference: Any) -> tuple[float, str]:
    """Return the largest error over the answer's arrays, and the dtype of the answer.

    The error of an array is its largest difference from the reference, divided by the reference's largest entry.
    """
    import numpy as np

    worst, dtypes = 0.0, set()
    for name in reference:
        right, given = reference[name], np.asarray(answer[name])
        if given.shape != right.shape:
            raise ValueError(f"{name} has shape {given.shape}, the reference {right.shape}")
        dtypes.add(str(given.dtype))
        scale = float(np.abs(right).max())
        for rows in range(0, right.shape[0], 256):  # in blocks because the arrays are large
            off = float(np.abs(given[rows : rows + 256] - right[rows : rows + 256]).max()) / scale
            worst = max(worst, off) if off == off else float("inf")
    return worst, "/".join(sorted(dtypes))


def reset_peak() -> None:
    """Reset the peak memory that Linux records for this process."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _status(field: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))
    except (OSError, StopIteration):
        return None


def resident() -> int | None:
    """Return the resident memory of this process in bytes, or None if the system is not Linux."""
    return _status("VmRSS")


def peak_resident() -> int | None:
    """Return this process's peak memory since `reset_peak`, in bytes, or None if the system is not Linux."""
    return _status("VmHWM")


def serve(requests: TextIO, replies: TextIO) -> None:
    """Reply to each request until the stream of requests ends."""
    work: Any = None
    for line in requests:
        request = json.loads(line)
        try:
            if request["do"] == "prepare":
                reply, work = prepare(request)
            elif request["do"] == "answer":
                reply = answer(request)
            elif request["do"] == "rates":
                import ours

                reply = ours.rates(request["threads"])
            else:
                reply = {"seconds": turn(work, request["seconds"], request["warm"])}
        except Exception as error:  # the report lists the failures of sides
            text = str(error).strip().splitlines() or [""]
            reply = {"failed": f"{type(error).__name__}: {text[0][:300]}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    threads = int(sys.argv[1])
    if hasattr(os, "sched_setaffinity"):  # all libraries use the same cores, whatever their number of threads
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # redirects the output of libraries to the log
    serve(sys.stdin, channel)
