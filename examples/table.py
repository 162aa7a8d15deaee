"""Run all or some of the paper scripts and fill in the table of examples/README.md.

    python3 make.py python examples/table.py [--out DIR] [NAME ...]

Each script runs as with `minintk reproduce NAME`, at laptop scale on the packaged digits; its rows and its time on one
core replace those in the README.  With --data DIR, the same for the rows on real MNIST, which are otherwise unchanged.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from minintk.experiments.papers import chosen, rerun

HERE = Path(__file__).resolve().parent
HEADER = "| claim | script | paper | here | time on one core |\n| --- | --- | --- | --- | --- |\n"


def rows(key: str, name: str, found: dict[str, object]) -> list[str]:
    """Lines of the table, one per claim; the first one contains the time."""
    table = found["table"]
    assert isinstance(table, list)
    lines = []
    for i, (claim, paper, ours) in enumerate(table):
        time = f"{found['core seconds']:.0f} s" if i == 0 and "core seconds" in found else ""
        lines.append(f"| {claim} | [{key}]({name}.py) | {paper} | {ours} | {time} |\n")
    return lines


def fill(readme: str, key: str, new: list[str]) -> str:
    r"""The text with the rows of `key` replaced, or appended to the table; ValueError without a table.

    >>> fill(HEADER + "| a | [b](b.py) | | | |\n\nend", "b", ["| c | [b](b.py) | | | |\n"]).splitlines()[-3:]
    ['| c | [b](b.py) | | | |', '', 'end']
    """
    if readme.count(HEADER) != 1:
        raise ValueError(f"README.md expects one table that begins with {HEADER!r}")
    before, rest = readme.split(HEADER)
    lines = rest.splitlines(keepends=True)
    end = next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))
    body, old = lines[:end], f"| [{key}]("
    at = next((i for i, line in enumerate(body) if old in line), end)
    kept = [line for line in body[:at] if old not in line], [line for line in body[at:] if old not in line]
    return before + HEADER + "".join([*kept[0], *new, *kept[1], *lines[end:]])


def main() -> None:
    """Run the scripts, and write the README after each one, so that an interruption loses little."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts, without .py (all)")
    parser.add_argument("--out", default="examples-out", metavar="DIR", help="folder for figures and numbers")
    parser.add_argument("--data", metavar="DIR", help="MNIST there instead of the digits inside; other rows are filled")
    parser.add_argument("--ran", action="store_true", help="run nothing: fill in what --out already holds")
    args = parser.parse_args()
    paths = chosen(args.names)
    kept = {name: json.loads((Path(args.out) / f"{name}.json").read_text("utf-8")) for name in paths if args.ran}
    for name, found in kept.items() if args.ran else rerun(paths, args.out, data=args.data):
        if found is None:
            raise SystemExit(f"{name}.py failed")
        readme = HERE / "README.md"
        key = f"{name}, MNIST" if args.data else name
        readme.write_text(fill(readme.read_text(encoding="utf-8"), key, rows(key, name, found)), encoding="utf-8")
        print(f"{name}: {found['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
