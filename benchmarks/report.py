"""Write the results of the benchmarks as a report in Markdown and as data in JSON."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from accuracy import KINDS, Errors
from harness import Measured


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table. Its columns are aligned, so that it can also be read in a terminal."""
    widths = [max(len(row[i]) for row in (head, *lines)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        others = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
        return "| " + " | ".join([cells[0].ljust(widths[0]), *others]) + " |"

    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([line(head), rule, *map(line, lines)])


def seconds(t: float | None) -> str:
    """Return a time as text, with three significant digits and a unit."""
    if t is None:
        return ""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if t >= scale:
            return f"{t / scale:.3g} {unit}"
    return f"{t / 1e-6:.3g} us"


HEAD = ("side", "time", "time / ours", "interval", "of limit", "target", "error", "first call", "memory")


def timed(name: str, unit: str, sides: Sequence[Measured], limit: float | None = None, entries: float = 0.0) -> str:
    """Return the section of the report about a row, with a line for each side.

    limit : the minimum seconds per unit at the machine's peak rates. entries : kernel entries, summed over all layers.
    """
    lines, notes = [], []
    words = f"Time for one {unit}."
    if limit:
        words += f" At the machine's peak rates, it would take {seconds(limit)}."
    if entries and sides[0].time:
        words += f" minintk takes {1e9 * sides[0].time / entries:.3g} ns per entry and layer."
    for i, one in enumerate(sides):
        if one.failed:
            notes.append(f"{one.side} did not run: {one.failed}")
        verdict = {True: ", met", False: ", missed", None: ""}[one.met]
        lines.append(
            (
                one.side,
                seconds(one.time),
                f"{one.ratio:.2f}" if one.ratio and i else "",
                "{:.2f} .. {:.2f}".format(*one.interval) if one.ratios and i else "",
                f"{limit / one.time:.2f}" if limit and one.time and one.error is not None else "",
                "" if one.at_least is None else f">= {one.at_least:g}{verdict}",
                ("" if one.error is None else f"{one.error:.0e}") + ("" if one.right else " WRONG"),
                seconds(one.first) if one.first else "",
                "" if one.peak is None else f"{one.peak / 2**20:.0f} MB",
            )
        )
    return "\n\n".join([f"### {name}", words, table(HEAD, lines), *notes])


def accuracy(errors: Sequence[Errors]) -> str:
    """Return the section with the largest errors of the NTK for each kind of pair."""
    ordered = sorted(errors, key=lambda e: (e.dtype, e.activation != "relu", e.depth, e.side))
    lines = [
        (
            f"{e.activation}, {e.depth} hidden, {e.dtype}, {e.side}",
            *(f"{e.errors['ntk'][kind]:.0e}" if not e.failed else "" for kind in KINDS),
        )
        for e in ordered
    ]
    failures = sorted({f"{e.side} did not run: {e.failed}" for e in ordered if e.failed})
    head = ["### Accuracy of the NTK on hard pairs", "Largest error / sqrt(k(x, x) k(x', x')), against 50 digits."]
    return "\n\n".join([*head, table(("kernel", *KINDS), lines), *failures])


def machine(threads: int, device: str, rates: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Return the properties of this machine that affect times. rates : the output of `ours.rates`."""
    model, memory = platform.processor() or platform.machine(), ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        model = ", model ".join(told[key] for key in ("model name", "model") if key in told) or model
        memory = f"{int(Path('/proc/meminfo').read_text().split()[1]) / 2**20:.0f} GB"
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "threads used": threads,
        "memory": memory,
        "system": f"{platform.system()} {platform.machine()}",
        "device": device,
    } | {name: f"{rate / 1e9:.3g} x 10^9 a second" for name, rate in (rates or {}).items()}


def versions(rows: Sequence[tuple[str, str, list[Measured]]]) -> dict[str, str]:
    """Return {environment: its package versions}, with the running Python's version under "python"."""
    found: dict[str, str] = {"python": platform.python_version()}
    for _, _, sides in rows:
        for one in sides:
            if one.versions:
                found[one.environment] = ", ".join(f"{name} {version}" for name, version in one.versions.items())
    return found


def markdown(about: dict[str, Any], found: dict[str, str], sections: Sequence[str], before: str = "") -> str:
    """Return the report, with the results of this run in the section of this processor.

    before : the previous report, from which the sections of other processors are kept.
    """
    where = ", ".join(f"{name}: {value}" for name, value in about.items() if value)
    head = [f"## {about['processor']}", f"{date.today().isoformat()}.  {where}."]
    head += ["  ".join(f"{name}: {value}." for name, value in found.items())]
    kept = [f"## {part.strip()}" for part in re.split(r"^## ", before, flags=re.M)[1:]]
    others = [part for part in kept if part.splitlines()[0] != head[0]]
    return "\n\n".join(["# Results of the benchmarks", "\n\n".join([*head, *sections]), *others]) + "\n"


def _record(one: Measured) -> dict[str, Any]:
    return asdict(one) | {"time": one.time, "ratio": one.ratio, "met": one.met}


def write(
    stem: Path, text: str, about: dict[str, Any], found: dict[str, str],
    rows: Sequence[tuple[str, str, list[Measured]]], errors: Sequence[Errors],
) -> None:  # fmt: skip
    """Write the report to stem.md and the measurements to stem.json."""
    stem.with_suffix(".md").write_text(text, encoding="utf-8")
    record = {
        "date": date.today().isoformat(),
        "machine": about,
        "versions": found,
        "rows": [{"name": name, "unit": unit, "sides": [_record(one) for one in sides]} for name, unit, sides in rows],
        "accuracy": [asdict(e) for e in errors],
    }
    stem.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
