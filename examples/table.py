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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from minintk.experiments.papers import EXAMPLES, chosen, rerun, scripts

PAGE = EXAMPLES.parent / "docs" / "papers" / "index.md"
PAPERS = {
    "Lee et al.": "Lee et al. 2019: wide networks of any depth evolve as linear models",
    "Geiger et al.": "Geiger et al. 2020: disentangling feature and lazy training",
    "Samarin et al.": "Samarin et al. 2022: feature learning against random features",
    "terative linearis": "Iterative linearised training",
}
"""{what the docstring of a script says: title of the paper}"""
DATA = {"digits": "8 x 8 digits", "mnist": "MNIST", "cifar10": "CIFAR-10"}
OF = {"seeds": "seeds", "images": "test images", "both": "seeds and test images", "": ""}
HEAD = """\
# The papers, run again

Every claim of the papers that this library implements, measured again: the paper's number, ours, and what its interval
covers. ± is half of a 95 % interval by Student's t, over seeds (other networks), over test images (the same network on
other images), or over both. One script stands behind each figure, and one command fills this page:

    python3 make.py python examples/table.py --data DIR --scale evening

`minintk reproduce NAME --data DIR` prints a script's table and draws its figure without changing this page. A run is
recorded as soon as it is done, so that either goes on where it was interrupted. `--scale paper` takes the paper's own
sizes, on a GPU.

"""


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
    text = json.dumps(kept | {"table": found["table"]}, indent=1, ensure_ascii=False)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    (PAGE.parent / f"{key}.json").write_text(f"{text}\n", "utf-8")
    with Image.open(out / f"{key}.png") as drawn:
        drawn.convert("RGB").quantize(128).save(PAGE.parent / f"{key}.png", optimize=True)


def page(results: dict[str, dict[str, Any]], docs: dict[str, str]) -> str:
    """The text of index.md.  results : {key: what `keep` wrote}.  docs : {script: docstring}."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for key, found in results.items():
        paper = next((title for says, title in PAPERS.items() if says in docs[found["script"]]), "Other claims")
        groups.setdefault(paper, {})[key] = found
    groups = {paper: groups[paper] for paper in (*PAPERS.values(), "Other claims") if paper in groups}
    text = HEAD + "| paper | rows | on MNIST or CIFAR-10 | agree | differ | the paper gives no number |\n"
    text += "| --- | --- | --- | --- | --- | --- |\n"
    for paper, of_paper in groups.items():
        rows = [(found["data"], row) for found in of_paper.values() for row in found["table"]]
        says = [row["agrees"] for _, row in rows]
        counts = len(rows), sum(data != "digits" for data, _ in rows), says.count(True), says.count(False)
        text += f"| {paper} | {' | '.join(map(str, counts))} | {says.count(None)} |\n"
    text += "".join(f"\n## {paper}\n\n" + "\n".join(entries(of_paper, docs)) for paper, of_paper in groups.items())
    return text + differing(results)


def entries(of_paper: dict[str, dict[str, Any]], docs: dict[str, str]) -> Iterator[str]:
    """The part of the page about each result of one paper."""
    for key, found in of_paper.items():
        name, data = found["script"], DATA[found["data"]]
        title = docs[name].partition("\n\n")[0].replace("\n", " ").rstrip(".")
        yield f"### {title}: {data}\n"
        yield f"![{cell(title)}]({key}.png)\n"
        yield "| claim | paper | here | ± over | data and networks | seeds | agrees |"
        yield "| --- | --- | --- | --- | --- | --- | --- |"
        for row in found["table"]:
            agrees = {True: "yes", False: "no", None: ""}[row["agrees"]]
            cells = row["claim"], row["paper"], row["here"], OF[row["of"]], row["size"], row["seeds"] or "", agrees
            yield f"| {' | '.join(cell(str(each)) for each in cells)} |"
        minutes = found["core seconds"] / 60
        yield (
            f"\n{data}, scale {found['scale']}, {minutes:.1f} minutes of one core, "
            f"[examples/{name}.py](../../examples/{name}.py).\n"
        )


def differing(results: dict[str, dict[str, Any]]) -> str:
    """The last part: every row that is not what the paper says, with the cause that was tested, or "open"."""
    rows = [(found, row) for found in results.values() for row in found["table"] if row["agrees"] is False]
    text = "\n## Where ours and a paper differ\n\n| claim | paper | here | cause |\n| --- | --- | --- | --- |\n"
    for found, row in rows:
        cells = f"{row['claim']} ({DATA[found['data']]})", row["paper"], row["here"], row["why"] or "open"
        text += f"| {' | '.join(map(cell, cells))} |\n"
    return text


def cell(text: str) -> str:
    """Text as a cell of a table."""
    return " ".join(text.split()).replace("|", r"\|")


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
