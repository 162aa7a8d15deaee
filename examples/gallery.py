"""Run the examples, and store the figure and the output of each for the documentation's gallery.

The script table.py runs the scripts that rerun papers.

    python3 make.py python examples/gallery.py [NAME ...] [--out docs/gallery]

Each script runs in its own process with its default sizes.  All scripts together take about half an hour on two cores.
If names are given, only the named scripts run.  NAME.png is reduced to 128 colours, which shrinks the file to about a
third of its size.  NAME.txt contains the script's output.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from minintk.lab.experiments.papers import scripts

HERE = Path(__file__).resolve().parent
WITHOUT_FIGURE = "common", "gallery", "replicate", "table"
NAMES = sorted(
    path.stem for path in HERE.glob("*.py")
    if 'if __name__ == "__main__"' in path.read_text("utf-8") and path.stem not in {*WITHOUT_FIGURE, *scripts()}
)  # fmt: skip
"""All scripts except shared modules, runners and scripts that rerun papers."""


def run(name: str, out: Path) -> None:
    """Run one script and write NAME.png and NAME.txt into the folder `out`.

    Raise CalledProcessError if the script fails.
    """
    script = HERE / f"{name}.py"
    with TemporaryDirectory() as folder:
        figure = Path(folder) / f"{name}.png"
        command = [sys.executable, str(script), "--out", str(figure)]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder).stdout
        with Image.open(figure) as drawn:
            drawn.convert("RGB").quantize(128).save(out / f"{name}.png", optimize=True)
    lines = [line.rstrip() for line in printed.splitlines()]
    (out / f"{name}.txt").write_text("\n".join(lines).strip() + "\n", encoding="utf-8")


def main(names: Sequence[str], out: str) -> None:
    """Run the named examples, or all of them if no names are given, and print "done" or "failed" for each."""
    unknown = set(names) - set(NAMES)
    if unknown:
        raise SystemExit(f"no example is called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    Path(out).mkdir(parents=True, exist_ok=True)
    failed = []
    for name in names or NAMES:
        try:
            run(name, Path(out).resolve())
        except subprocess.CalledProcessError:  # the script has already printed its traceback
            failed.append(name)
        print(f"{name}: {'failed' if name in failed else 'done'}", flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--out", default="docs/gallery", metavar="DIR")
    args = parser.parse_args()
    main(args.names, args.out)
