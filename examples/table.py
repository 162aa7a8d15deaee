"""Run the scripts that rerun papers, and keep their tables and figures in docs/papers.

    python3 make.py python examples/table.py [NAME ...] [--data DIR [--set cifar10]] [--scale evening] [--out DIR]

Each script runs as with `minintk reproduce`, recorded in --out, so that an interrupted call goes on.  Its rows are kept
as docs/papers/KEY.json, its figure as KEY.png in 128 colours; then docs/papers/index.md is written from all that is
kept there.  With --ran nothing runs: what --out already holds is kept.
"""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path

from papers_page import page
from PIL import Image

from minintk.lab.experiments.papers import EXAMPLES, chosen, rerun, scripts

PAGE = EXAMPLES.parent / "docs" / "papers" / "index.md"


def keep(name: str, kind: str, out: Path) -> None:
    """Copy one result from `out` into docs/papers: rows, time and figure."""
    key = name if kind == "digits" else f"{name}-{kind}"
    found = json.loads((out / f"{key}.json").read_text("utf-8"))
    spent = json.loads((out / f"{key}.time.json").read_text("utf-8"))
    kept = {
        "script": name,
        "data": found["data"],
        "scale": found["scale"],
        "core seconds": round(spent["core seconds"]),
    }
    rows = [row | {"why": row["why"] if row["agrees"] is False else ""} for row in found["table"]]
    text = json.dumps(kept | {"table": rows}, indent=1, ensure_ascii=False)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    (PAGE.parent / f"{key}.json").write_text(f"{text}\n", "utf-8")
    with Image.open(out / f"{key}.png") as drawn:
        drawn.convert("RGB").quantize(128).save(PAGE.parent / f"{key}.png", optimize=True)


def kept_page() -> str:
    """The page, from all that docs/papers holds."""
    docs = {name: ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "" for name, path in scripts().items()}
    files = sorted(PAGE.parent.glob("*.json"))
    return page({path.stem: json.loads(path.read_text("utf-8")) for path in files}, docs)


def main() -> None:
    """Run the scripts, and write the page after each one, so that an interruption loses little."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts, without .py (all)")
    parser.add_argument("--out", default="examples-out", metavar="DIR", help="folder for runs, figures and numbers")
    parser.add_argument("--data", metavar="DIR", help="folder with MNIST or CIFAR-10; without it, the digits inside")
    parser.add_argument("--set", choices=("digits", "mnist", "cifar10"), help="which images (mnist with --data)")
    parser.add_argument("--scale", default="small", choices=("small", "evening", "paper"))
    parser.add_argument("--device", choices=("cpu", "gpu"))
    parser.add_argument("--ran", action="store_true", help="run nothing: keep what --out already holds")
    args = parser.parse_args()
    kind, out = args.set or ("mnist" if args.data else "digits"), Path(args.out)
    paths, options = chosen(args.names), {"data": args.data, "scale": args.scale, "device": args.device}
    done = ((name, {}) for name in paths) if args.ran else rerun(paths, args.out, images=args.set, **options)
    for name, found in done:
        if found is None:
            raise SystemExit(f"{name}.py failed")
        keep(name, kind, out)
        PAGE.write_text(kept_page(), "utf-8")
        print(f"{name}, {kind}: kept", flush=True)


if __name__ == "__main__":
    main()
