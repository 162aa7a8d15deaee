"""The page docs/papers/index.md, from the rows that table.py keeps there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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

Claims of the papers that this library implements, measured again: the paper's number, ours, and what its interval
covers. ± is half of a 95 % interval by Student's t, over seeds (other networks), over test images (the same network on
other images), or over both. One script stands behind each figure, and one command fills this page:

    python3 make.py python examples/table.py --data DIR --scale evening

"Yes": the paper's number lies in our interval (for an exponent with .1 more, for finite widths), or what it says in
words holds beyond our interval; where it shows that curves agree, our interval of the difference lies within 5 % of the
loss or 2 points of accuracy. "Not decided": our interval also holds the opposite. "No": the last section says why.

`minintk reproduce NAME --data DIR` prints a script's table and draws its figure without changing this page. A run is
recorded as soon as it is done, so that either goes on. `--scale paper` takes the paper's own sizes, on a GPU.

"""


def page(results: dict[str, dict[str, Any]], docs: dict[str, str]) -> str:
    """The text of index.md.  results : {key: what `keep` wrote}.  docs : {script: docstring}."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for key, found in results.items():
        paper = next((title for says, title in PAPERS.items() if says in docs[found["script"]]), "Other claims")
        groups.setdefault(paper, {})[key] = found
    groups = {paper: groups[paper] for paper in (*PAPERS.values(), "Other claims") if paper in groups}
    text = HEAD + "| paper | rows | on MNIST or CIFAR-10 | agree | differ | not decided | the paper says nothing |\n"
    text += "| --- " * 7 + "|\n"
    for paper, of_paper in groups.items():
        rows = [(found["data"], row) for found in of_paper.values() for row in found["table"]]
        says = [says_so(row) for _, row in rows]
        counts = (
            len(rows),
            sum(data != "digits" for data, _ in rows),
            *map(says.count, ("yes", "no", "not decided", "")),
        )
        text += f"| {paper} | {' | '.join(map(str, counts))} |\n"
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
            cells = (
                row["claim"],
                row["paper"],
                row["here"],
                OF[row["of"]],
                row["size"],
                row["seeds"] or "",
                says_so(row),
            )
            yield f"| {' | '.join(cell(str(each)) for each in cells)} |"
        minutes = found["core seconds"] / 60
        yield (
            f"\n{data}, scale {found['scale']}, {minutes:.1f} minutes of one core, "
            f"[examples/{name}.py](../../examples/{name}.py).\n"
        )


def says_so(row: dict[str, Any]) -> str:
    """What stands in the last column: "" where the paper says nothing."""
    return {True: "yes", False: "no", None: "" if row["paper"] == "-" else "not decided"}[row["agrees"]]


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
