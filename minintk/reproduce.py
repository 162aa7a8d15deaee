"""The scripts of examples/ that rerun a paper: which there are, and running one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
"""Beside the package in a checkout; an installed package comes without."""


def scripts() -> dict[str, Path]:
    """{name: file} of the scripts that have a table of claims, in alphabetical order.

    FileNotFoundError where the package was installed without them.
    """
    found = [p for p in sorted(EXAMPLES.glob("*.py")) if "command_line(main, __doc__" in p.read_text(encoding="utf-8")]
    if not found:
        raise FileNotFoundError(
            f"the scripts that rerun the papers come with the source, not with the installed package: no {EXAMPLES}; "
            "run minintk reproduce from a checkout of the project (pip install -e .)"
        )
    return {path.stem: path for path in found}


def chosen(names: Sequence[str]) -> dict[str, Path]:
    """The scripts of these names, all for none; ValueError for a name that is none.

    >>> list(chosen(["time_to_learn"]))                          # in a checkout
    ['time_to_learn']
    """
    every = scripts()
    if unknown := [name for name in names if name not in every]:
        raise ValueError(f"reproduce expects names among {', '.join(every)}, got {', '.join(unknown)}")
    return {name: every[name] for name in names} if names else every


def rerun(
    path: Path, out: str, *, data: str | None = None, scale: str = "laptop", device: str | None = None
) -> dict[str, Any]:
    """Run one script in a Python of its own; returns what it wrote to out/NAME.json, and leaves out/NAME.png.

    data : a folder with MNIST in place of the digits inside.  scale : "laptop" or "paper".  device : "cpu" or "gpu",
    unless given the GPU for the paper's scale.  RuntimeError where the script fails; it has said why on stderr.
    """
    options = {"out": out, "data": data, "scale": scale, "device": device}
    told = [part for name, value in options.items() if value is not None for part in (f"--{name}", value)]
    status = subprocess.run([sys.executable, str(path), *told], stdout=subprocess.DEVNULL, check=False).returncode
    if status:
        raise RuntimeError(f"{path.name} ended with status {status}")
    found: dict[str, Any] = json.loads((Path(out) / f"{path.stem}.json").read_text(encoding="utf-8"))
    return found
