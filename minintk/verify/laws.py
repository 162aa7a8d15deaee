"""`minintk verify --mup`: the laws of networks whose features move, each held against real networks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from operator import methodcaller
from pathlib import Path
from typing import Any

from minintk.files.writing import made_folder, write_atomically
from minintk.verify import beyond, mup
from minintk.verify.claims import Verdict
from minintk.verify.findings import Finding
from minintk.verify.report import versions

LAWS: dict[str, Callable[[int], Iterator[Finding]]] = {
    "rates": mup.rates, "laziness": mup.laziness, "coordinates": mup.coordinates, "depth": mup.depth,
    "decay": mup.decay, "transfer": mup.transfer, "muon": mup.muon, "sharpness": mup.sharpnesses,
    "orders": beyond.orders, "mean": beyond.mean, "limit": beyond.limit,
}  # fmt: skip
"""{name: seed -> findings}, in the order of docs/mup.md and docs/beyond-the-kernel.md."""
COLUMNS = "law", "theory", "measured", "verdict", "seconds"


def run(only: Sequence[str] = (), *, seed: int = 0) -> Iterator[Finding]:
    """The findings of all laws, or of those named, one by one; ValueError for a name that is none.

    >>> [found.verdict for found in run(["rates"])]
    ['pass', 'pass', 'pass', 'pass']
    """
    if unknown := [name for name in only if name not in LAWS]:
        raise ValueError(f"laws expects some of {', '.join(LAWS)}, got {', '.join(unknown)}")
    for name in only or LAWS:
        begun = time.perf_counter()
        for finding in LAWS[name](seed):
            yield replace(finding, seconds=round(time.perf_counter() - begun, 1))
            begun = time.perf_counter()


def verdict(findings: Sequence[Finding]) -> Verdict:
    """Fail if any law does, undecided if any law or control is, pass else."""
    found = {finding.verdict for finding in findings}
    return "fail" if "fail" in found else "undecided" if "undecided" in found else "pass"


def cells(finding: Finding) -> tuple[str, ...]:
    """The row, as text."""
    law = f"control: {finding.law}" if finding.control else finding.law
    said = {"pass": "refused", "undecided": "not refused", "fail": "fail"} if finding.control else {}
    return law, finding.theory, finding.measured, said.get(finding.verdict, finding.verdict), f"{finding.seconds:g}"


def write(findings: Sequence[Finding], out: str | Path, command: str) -> Path:
    """Write mup.json, and mup.md with the table, into the folder `out`; returns the path of mup.md."""
    folder = made_folder(Path(out).expanduser(), "out")
    rows = [COLUMNS, ["---"] * len(COLUMNS), *([c.replace("|", "\\|") for c in cells(found)] for found in findings)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    record: dict[str, Any] = {"command": command, "verdict": verdict(findings), "versions": versions()}
    record["findings"] = [asdict(found) for found in findings]
    for name, text in {"mup.json": json.dumps(record, indent=1, ensure_ascii=False), "mup.md": f"{table}\n"}.items():
        write_atomically(folder / name, methodcaller("write", text.encode()))
    return folder / "mup.md"
