"""Write the ledger of docs/papers: our sizes, the papers' sizes, and the estimated times for the papers' sizes."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

from running import SIZE

WIDE = ("widths", "wide", "width", "channels")
POWER_OF_N = {
    "lee_wide_resnet": 0, "lee_cross_entropy": 0, "lee_convolutional_kernels": 2, "lee_monte_carlo": 2,
    "spectrum_of_lenet": 2, "interpolation_threshold": 3, "exact_linearised_lenet": 2,
}  # fmt: skip
"""{script: p} for scripts whose time grows as N^p with the number N of training images and p other than 1. p is 0 for
mini-batches, and 2 or 3 for kernels and linear solves."""
UNDER_WAY = Path(__file__).resolve().parents[1] / "docs" / "papers" / "under-way"
"""The folder of unfinished runs at the papers' sizes, with the subfolders that `sweep` writes."""
LEDGER = """
## The ledger of sizes

Each cell has our size, and the paper's in brackets if it differs. The column "most" has the largest factor between
them. The last column estimates the hours that a script needs at the paper's size on one core: the minutes measured here
times the ratio of N x width² x steps x seeds x depth. The square of the width is summed over all widths of a script. N
enters squared for kernels, and not at all for mini-batches. For the six scripts that ran on digits and on MNIST or
CIFAR-10, these estimates were off by a factor of 3 at most. The command below runs a script at that size and resumes in
OUT after an interruption. Finished parts of such runs are in docs/papers/under-way; to continue them, set OUT to this
folder:

    minintk reproduce NAME --data DIR --set mnist --scale paper --first-seed 60000 --device cpu --out OUT

| script | rows | N | width | steps | seeds | most | min here | hours at the paper's size |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
UNDECIDED = """
## What would decide the undecided rows

Standard errors are proportional to the inverse root of the number of seeds. If no mean moves, a row needs the seeds
used here times the square of a ratio. Its numerator is the number of standard errors that the level requires, and its
denominator the number between the mean and the nearest margin. The hours are the script's minutes above times this
factor. If the mean lies outside the margin, more seeds decide against the paper at our width. For new seeds at the
sizes above, run the script with `--seeds SEEDS --first-seed 40000`.

| claim | script | here | rule | decided by | hours on one core | then |
| --- | --- | --- | --- | --- | --- | --- |
"""


def work(script: str, sizes: Mapping[str, Any]) -> float:
    """Return a number proportional to the expected time of a script at these sizes.

    >>> work("one", {"widths": (10, 20), "seeds": 3, "eta": 0.1})
    1500.0
    """
    numbers = {name: value if isinstance(value, (list, tuple)) else (value,) for name, value in sizes.items()}
    total = float(sum(w**2 for name in WIDE for w in numbers.get(name, ())) or 1)
    for name, values in numbers.items():
        if name in SIZE["N"]:
            total *= float(values[0] or 1) ** POWER_OF_N.get(script, 1)
        elif name in (*SIZE["steps"], *SIZE["seeds"], "depth", "draws"):
            total *= sum(values)
        elif name not in WIDE:
            total *= max(1, len(values))
    return total


def hours(found: Mapping[str, Any]) -> float:
    """Estimate from our run's time the hours that the paper's size takes on one core."""
    sizes = {name: value or found["papers"][name] for name, value in found["sizes"].items()}  # 0: taken as the paper's
    ratio = work(found["script"], found["papers"]) / work(found["script"], sizes)
    return float(found["core seconds"]) / 3600 * ratio


def beside(found: Mapping[str, Any], kind: str) -> str:
    """Return a table cell: our largest size of one kind, followed by the paper's in brackets if it differs."""
    for key in SIZE[kind]:
        if ours := found["sizes"].get(key):
            both = ours, found["papers"].get(key, ours)
            most, paper = (max(v) if isinstance(v, (list, tuple)) else v for v in both)
            return f"{most:,}" if paper in (most, 0) else f"{most:,} ({paper:,})"
    return ""


def ledger(results: Mapping[str, dict[str, Any]]) -> str:
    """Return the page's section on sizes and times; the cheapest scripts come first.

    results : {key: the result that `keep` wrote}.
    """
    text = LEDGER
    for found in sorted(results.values(), key=hours):
        data = "CIFAR-10" if found["data"] == "cifar10" else "MNIST"
        largest = max(found["factors"].values(), default=1.0)
        cells = [f"{found['script']}, {data}", len(found["table"]), *(beside(found, kind) for kind in SIZE)]
        runs = len([*UNDER_WAY.glob(f"{found['script']}.runs/*/records/*.json")]) if found["data"] == "mnist" else 0
        price = f"{hours(found):,.2g}" + f" ({runs} runs done)" * bool(runs)
        cells += [f"{max(largest, 1.0):.3g}", f"{found['core seconds'] / 60:.1f}", price]
        text += f"| {' | '.join(map(str, cells))} |\n"
    return text


def undecided(results: Mapping[str, dict[str, Any]]) -> str:
    """Return the page's section on undecided rows; the rows that are cheapest to decide come first.

    results : as in `ledger`.
    """
    lines = []
    for key, found in results.items():
        for row in found["table"]:
            if not row["rule"] or row["agrees"] is not None:
                continue
            if row["more"] is None or abs(row["more"]) > 1e4:
                why = "training until it converges" if row["more"] is None else "none: the mean is on the margin"
                price, needs = inf, (why, "", "")
            else:
                price, times = abs(row["more"]) * found["core seconds"] / 3600, max(1.0, abs(row["more"]))
                many = [f"{times * row['seeds']:,.0f} seeds"] if row["of"] != "images" else []
                many += [f"{times:.3g} x the test images"] if row["of"] in ("images", "both") else []
                needs = ", ".join(many), f"{price:,.2g}", "agrees" if row["more"] > 0 else "differs"
            lines.append((price, (row["claim"], key.replace("-", ", "), row["here"], row["rule"], *needs)))
    cells = (" | ".join(" ".join(c.split()).replace("|", r"\|") for c in row) for _, row in sorted(lines))
    return UNDECIDED + "".join(f"| {row} |\n" for row in cells) if lines else ""
