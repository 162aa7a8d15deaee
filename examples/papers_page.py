"""Write the pages of docs/papers from the rows that table.py stores: index.md, a page for each paper, and digits.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ledger import ledger, undecided

PAPERS = {
    "Lee et al.": ("lee", "Lee et al. 2019: wide networks of any depth evolve as linear models"),
    "Geiger et al.": ("geiger", "Geiger et al. 2020: disentangling feature and lazy training"),
    "Samarin et al.": ("samarin", "Samarin et al. 2022: feature learning against random features"),
    "terative linearis": ("iterative", "Iterative linearised training"),
    "Pleiss": ("mup", "Pleiss, lecture 11: spectral muP"),
}
"""A mapping {phrase in a script's docstring: (name of the page, title of the paper)}."""
PAGES = {title: page for page, title in PAPERS.values()} | {"Other claims": "other"}
"""A mapping {title of the paper: name of its page}."""
DATA = {"digits": "8 x 8 digits", "mnist": "MNIST", "cifar10": "CIFAR-10"}
OF = {"seeds": "seeds", "images": "test images", "both": "seeds and test images", "": ""}
NEAR = 4.0
"""The table has a column for the rows whose size is smaller than the paper's by at most this factor."""
HEAD = """\
# The papers, run again

These pages measure claims of the papers that this library implements. They give the paper's number, our number and
what its interval covers. The symbol ± precedes half the width of a 95 % interval by Student's t. The interval is over
seeds (other networks), over test images (the same network on other images), or over both. Each figure comes from one
script. This command reruns all scripts and writes these pages:

    python3 make.py python examples/table.py --data DIR

A row **agrees** with the paper if each of its intervals lies inside the range in the column "rule". These are two
one-sided tests at a level of 5 % for all numbers of the row together (Holm). A row **differs** if one interval lies
outside. Otherwise it is **undecided**, and more seeds or a larger width would decide it. A run that has not converged
is also undecided. The margins of the rules were fixed before the runs:

| kind of number | margin | why |
| --- | --- | --- |
| exponent, or a bound on one | 0.1 | at our widths, a correction c / n shifts a fit over a decade of widths by 0.1 |
| ratio to theory | 10 % | the same correction shifts the ratio |
| loss or curve | 5 % | closer curves look like one |
| accuracy | 2 points | closer curves look like one |
| larger, falls, grows | none | the paper gives only a direction |
| small, far below | a factor of 2 | the word can hardly mean less |

The size of a run is the paper's size divided by ours: the largest of the ratios for training images, width, steps and
seeds.

"""
RULES = """\
These are rows and figures of [the papers, run again](index.md). The rules by which a row agrees or differs, and the
counts of rows, are on that page.

"""
DIGITS = """\
# The papers on 8 x 8 digits

The same scripts run on the digits inside the package, so they need no other data. They repeat the claims of [the
papers' page](index.md) at a small size, and its counts leave them out. The rules are on that page, which also links to
the results on MNIST and CIFAR-10.

"""


def page(results: dict[str, dict[str, Any]], docs: dict[str, str], again: dict[str, Any] | None = None) -> str:
    """Return the text of index.md: the counts, the ledger, and the undecided and differing rows.

    results : {key: the result that `keep` wrote}.
    docs : {script: docstring}.
    again : the result of `added`, or None.
    """
    results = {key: found for key, found in results.items() if found["data"] != "digits"}
    ruled = {key: found for key, found in results.items() if judged(found)}
    groups = by_paper(ruled, docs)
    columns = "paper", "rows", "at its size", f"within {NEAR:g} x", "smaller", "agree", "differ", "undecided", "silent"
    text = f"{HEAD}| {' | '.join(columns)} |\n{'| --- ' * len(columns)}|\n"
    for paper, of_paper in groups.items():
        rows = [row for found in of_paper.values() for row in found["table"]]
        sizes = [largest(found) for found in of_paper.values() for _ in found["table"]]
        near = sum(1 < size <= NEAR for size in sizes)
        says = [says_so(row) for row in rows]
        counts = len(rows), sum(size <= 1 for size in sizes), near, sum(size > NEAR for size in sizes)
        said = (says.count(answer) for answer in ("yes", "no", "undecided", ""))
        text += f"| [{paper}]({PAGES[paper]}.md) | {' | '.join(map(str, (*counts, *said)))} |\n"
    if waiting := [len(found["table"]) for key, found in results.items() if key not in ruled]:
        text += f"\n{sum(waiting)} rows of {len(waiting)} scripts wait for new networks, and have no verdict below.\n"
    pages = "\n".join(PAGES[paper] for paper in by_paper(results, docs))
    toc = f"\n```{{toctree}}\n:hidden:\n\n{pages}\ndigits\n```\n"
    return text + replicated(again) + ledger(ruled) + undecided(ruled) + differing(ruled) + toc


def paper_pages(results: dict[str, dict[str, Any]], docs: dict[str, str]) -> dict[str, str]:
    """Return {name of the page: its text}, with one page for each paper.

    The arguments have the same meaning as in `page`.
    """
    groups = by_paper({key: found for key, found in results.items() if found["data"] != "digits"}, docs)
    return {
        PAGES[paper]: f"# {paper}\n\n{RULES}" + "\n".join(entries(found, docs, "##")) for paper, found in groups.items()
    }


def added(folder: Path) -> dict[str, Any]:
    """Sum the counts in `folder`, to which replicate.py writes one file per result."""
    total: dict[str, Any] = {"results": 0, "numbers": 0, "beyond": 0, "verdicts": 0, "changed": 0, "flips": []}
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text("utf-8"))["counts"]
        total = {name: value + found.get(name, 1) for name, value in total.items()}
    return total


def replicated(again: dict[str, Any] | None) -> str:
    """Return the sentences about repeated results, or "" if no result was repeated."""
    if not again or not again["results"]:
        return ""
    share = again["beyond"] / max(1, again["numbers"])
    return (
        f"\nWe repeated {again['results']} results with other networks (`python3 make.py replicate --data DIR`). Of "
        f"{again['numbers']} numbers, {again['beyond']} ({share:.1%}) differ by more than the root of the sum of "
        "squares of both half-widths. Of independent numbers 5 % would. "
        f'Of {again["verdicts"]} verdicts, {len(again["flips"])} changed from "yes" to "no" or back, '
        f"and {again['changed']} changed in any way.\n"
    )


def judged(found: dict[str, Any]) -> bool:
    """Return True if a result has rules.

    Older results have no rules, because the margins were chosen after these results were known.
    """
    return "factors" in found


def digits_page(results: dict[str, dict[str, Any]], docs: dict[str, str]) -> str:
    """Return the text of digits.md."""
    own = {key: found for key, found in results.items() if found["data"] == "digits"}
    return DIGITS + sections(by_paper(own, docs), docs).lstrip("\n")


def by_paper(results: dict[str, dict[str, Any]], docs: dict[str, str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return {title of the paper: {key: result}}, in the order of PAPERS."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for key, found in results.items():
        paper = next((title for says, (_, title) in PAPERS.items() if says in docs[found["script"]]), "Other claims")
        groups.setdefault(paper, {})[key] = found
    return {paper: groups[paper] for paper in PAGES if paper in groups}


def sections(groups: dict[str, dict[str, dict[str, Any]]], docs: dict[str, str]) -> str:
    """Return the text of the sections, one for each paper."""
    return "".join(
        f"\n## {paper}\n\n" + "\n".join(entries(of_paper, docs, "###")) for paper, of_paper in groups.items()
    )


def largest(found: dict[str, Any]) -> float:
    """Return the largest ratio of a size in the paper to our size, or 1 if no sizes are known."""
    return max(found["factors"].values(), default=1.0)


def entries(of_paper: dict[str, dict[str, Any]], docs: dict[str, str], level: str) -> Iterator[str]:
    """Yield the text about the results of one paper, line by line.

    level : the prefix of Markdown headings, such as "##".
    """
    for key, found in of_paper.items():
        name, data = found["script"], DATA[found["data"]]
        title = docs[name].partition("\n\n")[0].replace("\n", " ").rstrip(".")
        yield f"{level} {title}: {data}\n"
        yield f"![{cell(title)}]({key}.png)\n"
        yield "| claim | paper | here | ± over | data and networks | seeds | rule | agrees |"
        yield "| --- " * 8 + "|"
        for row in found["table"]:
            cells = (
                row["claim"], row["paper"], row["here"], OF[row["of"]], row["size"], row["seeds"] or "",
                row.get("rule", ""), says_so(row) if judged(found) else "waits",
            )  # fmt: skip
            yield f"| {' | '.join(cell(str(each)) for each in cells)} |"
        minutes = found["core seconds"] / 60
        parts = [f"{factor:.3g} ({what})" for what, factor in found.get("factors", {}).items() if factor != 1]
        size = f"the paper's size over ours: {', '.join(parts)}" if parts else "the paper's size"
        how = f"{size}; seeds from {found['first seed']}" if judged(found) else f"scale {found['scale']}"
        yield f"\n{data}, {how}; {minutes:.1f} minutes on one core, [examples/{name}.py](../../examples/{name}.py).\n"


def says_so(row: dict[str, Any]) -> str:
    """Return the verdict for the last column, or "" if the paper makes no claim."""
    return {True: "yes", False: "no", None: "undecided" if row["rule"] else ""}[row["agrees"]]


def differing(results: dict[str, dict[str, Any]]) -> str:
    """Return the section on differences: each row that differs from the paper, with the cause, or "open" if unknown."""
    rows = [(found, row) for found in results.values() for row in found["table"] if row["agrees"] is False]
    text = "\n## Where ours and a paper differ\n\n| claim | paper | here | cause |\n| --- | --- | --- | --- |\n"
    for found, row in rows:
        cells = f"{row['claim']} ({DATA[found['data']]})", row["paper"], row["here"], row["why"] or "open"
        text += f"| {' | '.join(map(cell, cells))} |\n"
    return text


def cell(text: str) -> str:
    """Escape `text` for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", r"\|")
