"""The scripts of examples/ that rerun papers: listing and running them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import sleep
from typing import Any

from minintk.fast.threads import cores
from minintk.files.reading import read_json

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
"""Present in a checkout only, not in an installed package."""


def scripts() -> dict[str, Path]:
    """{name: file} of the scripts that produce a table of claims, in alphabetical order.

    FileNotFoundError if the package was installed without them.
    """
    found = [p for p in sorted(EXAMPLES.glob("*.py")) if "command_line(main, __doc__" in p.read_text(encoding="utf-8")]
    if not found:
        raise FileNotFoundError(
            f"the scripts that rerun the papers come with the source, not with the installed package: no {EXAMPLES}; "
            "run minintk reproduce from a checkout of the project (pip install -e .)"
        )
    return {path.stem: path for path in found}


def chosen(names: Sequence[str]) -> dict[str, Path]:
    """The scripts with these names, or all if there are no names; ValueError for an unknown name.

    >>> list(chosen(["time_to_learn"]))                          # in a checkout
    ['time_to_learn']
    """
    every = scripts()
    if unknown := [name for name in names if name not in every]:
        raise ValueError(f"reproduce expects names among {', '.join(every)}, got {', '.join(unknown)}")
    return {name: every[name] for name in names} if names else every


def rerun(
    paths: Mapping[str, Path], out: str, *, data: str | None = None, scale: str = "laptop", device: str | None = None
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Run each script in its own process, and yield (name, content of out/NAME.json) as they finish.

    On the CPU, one script per core at a time with one BLAS thread each; on a GPU, one after the other.  The content is
    None for a script that failed (the reason is on stderr).  Closing the generator terminates the running scripts.

    data : a folder with MNIST, replacing the packaged digits.  scale : "laptop" or "paper".  device : "cpu" or "gpu";
    by default the GPU at the paper's scale.
    """
    options = {"out": out, "data": data, "scale": scale, "device": device}
    arguments = [part for name, value in options.items() if value is not None for part in (f"--{name}", value)]
    at_once = 1 if "gpu" in (device, "gpu" if scale == "paper" else "") else cores()
    one_thread = os.environ | dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    left, running = list(paths.items()), dict[str, subprocess.Popen[bytes]]()
    try:
        while left or running:
            while left and len(running) < at_once:
                name, path = left.pop(0)
                command = [sys.executable, str(path), *arguments]
                running[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=one_thread)
            sleep(0.1)
            for name in [name for name, process in running.items() if process.poll() is not None]:
                kept = Path(out) / f"{name}.json"
                failed = running.pop(name).returncode
                yield name, None if failed else read_json(kept, "the result of an example", "run the example again")
    finally:
        for process in running.values():
            process.terminate()
