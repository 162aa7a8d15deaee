"""List and run the scripts of examples/ that reproduce papers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from minintk.files.reading import read_json

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
"""The folder of the scripts.  It is present only in a checkout, not in an installed package."""
ENDS = '\nif __name__ == "__main__":\n    command_line(main, SIZES'
"""Text near the end of every script that reproduces a paper."""


def scripts(names: Sequence[str] = ()) -> dict[str, Path]:
    """Return {name: file} for the named scripts or, without names, for all that contain ENDS, in alphabetical order.

    Raises ValueError for an unknown name, and FileNotFoundError if the package was installed without the scripts.
    """
    found = [path for path in sorted(EXAMPLES.glob("*.py")) if ENDS in path.read_text("utf-8")]
    if not found:
        missing = f"the scripts that rerun the papers come with the source, not the installed package: no {EXAMPLES}"
        raise FileNotFoundError(f"{missing}; run minintk reproduce from a checkout of the project (pip install -e .)")
    every = {path.stem: path for path in found}
    if unknown := [name for name in names if name not in every]:
        raise ValueError(f"reproduce expects names among {', '.join(every)}, got {', '.join(unknown)}")
    return {name: every[name] for name in names} if names else every


def rerun(
    paths: Mapping[str, Path], out: str, *, images: str | None = None, **options: str | None
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Run the scripts one after the other, each on all cores, and yield (name, results) as they finish.

    The results are None if a script failed.  Progress and errors are printed to stderr.  Runs recorded in `out` are not
    repeated.  If this process ends for any reason, so does the script.

    images : "digits", "mnist" or "cifar10".  Defaults to "mnist" with data=, else to "digits".  options : data, scale,
    device and part, as in the scripts' own command lines; None omits an option.
    """
    options = {"out": out, "set": images} | options
    arguments = [part for name, value in options.items() if value is not None for part in (f"--{name}", value)]
    kind = images or ("mnist" if options.get("data") else "digits")
    for name, path in paths.items():
        sys.stderr.write(f"{name}, {kind}\n")
        command, ends = [sys.executable, str(path), *arguments], {"MININTK_ENDS_WITH_STDIN": "1"}
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL  # stdin closes when this process ends
        with subprocess.Popen(command, stdin=pipe, stdout=nothing, env=os.environ | ends) as process:
            try:
                failed = process.wait()
            finally:
                process.terminate()
        kept = Path(out) / (f"{name}.json" if kind == "digits" else f"{name}-{kind}.json")
        yield name, None if failed else read_json(kept, "the result of an example", "run the example again")
