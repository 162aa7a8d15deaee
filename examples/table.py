"""Run the scripts of the papers, all of them or those named, and fill the table of examples/README.md.

    python3 make.py python examples/table.py [--out DIR] [NAME ...]

Each script runs on its own, at laptop scale on the digits inside the package; its rows and its time replace the ones
that stand in the README.  Rows of other runs (real MNIST) are filled from their NAME.json with --from DIR, and kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter

HERE = Path(__file__).resolve().parent
SCRIPTS = tuple(sorted(p.stem for p in HERE.glob("*.py") if "command_line(main" in p.read_text(encoding="utf-8")))
START, END = "<!-- rows of {} -->\n", "<!-- end of {} -->\n"


def rows(name: str, found: dict[str, object], seconds: float | None) -> str:
    """Lines of the table, one a claim; the time stands in the first."""
    table = found["table"]
    assert isinstance(table, list)
    lines = []
    for i, (claim, paper, ours) in enumerate(table):
        time = f"{seconds:.0f} s" if seconds is not None and i == 0 else ""
        lines.append(f"| {claim} | [{name}]({name}.py) | {paper} | {ours} | {time} |\n")
    return "".join(lines)


def fill(readme: str, key: str, block: str) -> str:
    """The text with the lines between a script's two marks replaced; ValueError where it has none."""
    start, end = START.format(key), END.format(key)
    if readme.count(start) != 1 or readme.count(end) != 1:
        raise ValueError(f"README.md expects one line {start.strip()} and one {end.strip()}")
    before, rest = readme.split(start)
    return before + start + block + end + rest.split(end)[1]


def main() -> None:
    """Run, and write the README after each script, so that what is done is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *SCRIPTS], metavar="NAME", help=", ".join(SCRIPTS))
    parser.add_argument("--out", default="examples-out", metavar="DIR", help="folder for figures and numbers")
    parser.add_argument("--data", metavar="DIR", help="MNIST there instead of the digits inside; other rows are filled")
    parser.add_argument("--ran", action="store_true", help="run nothing: fill in what --out already holds")
    args = parser.parse_args()
    for name in args.names or SCRIPTS:
        key = f"{name}, MNIST" if args.data else name
        start = perf_counter()
        if not args.ran:
            data = ["--data", args.data] if args.data else []
            subprocess.run([sys.executable, str(HERE / f"{name}.py"), "--out", args.out, *data], check=True)
        found = json.loads((Path(args.out) / f"{name}.json").read_text(encoding="utf-8"))
        readme = HERE / "README.md"
        block = rows(name, found, None if args.ran else perf_counter() - start)
        readme.write_text(fill(readme.read_text(encoding="utf-8"), key, block), encoding="utf-8")


if __name__ == "__main__":
    main()
