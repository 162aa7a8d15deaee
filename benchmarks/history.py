"""Record the measurements of each run, one line per row, and find the rows whose times changed in the last run.

    history/PROCESSOR.jsonl   {"run", "date", "commit", "processor", "rates", "row",
                               "sides": {name: [median, least, most seconds]}}

A row has changed if the ranges of minintk's times in its last two runs do not overlap. A range extends from the
smallest to the largest time over rounds. A different clock rate of the machine also changes the times. To reveal this,
`moved` also returns how the peers' times and the machine's rates have changed.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from environments import HERE, ROOT
from harness import Measured

FOLDER = HERE / "history"


def file(processor: str, folder: Path = FOLDER) -> Path:
    """Return the path of the file for this processor."""
    return folder / (re.sub(r"[^a-z0-9]+", "-", processor.lower()).strip("-") + ".jsonl")


def note(
    processor: str, rates: Mapping[str, float], rows: Sequence[tuple[str, str, Sequence[Measured]]],
    folder: Path = FOLDER,
) -> None:  # fmt: skip
    """Append a run to this processor's file, with one line for each row."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=ROOT, capture_output=True, text=True
    )
    about = {
        "run": f"{time.time():.0f}", "date": datetime.now(UTC).date().isoformat(),
        "commit": described.stdout.strip() or "unknown", "processor": processor,
        "rates": {name: float(f"{rate:.3g}") for name, rate in rates.items()},
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    with file(processor, folder).open("a", encoding="utf-8") as lines:
        for name, _, sides in rows:
            found = {
                one.side: [float(f"{t:.4g}") for t in (one.time, min(one.seconds.values()), max(one.seconds.values()))]
                for one in sides
                if one.time is not None and one.right
            }
            lines.write(json.dumps(about | {"row": name, "sides": found}) + "\n")


def moved(processor: str, folder: Path = FOLDER) -> list[tuple[str, ...]]:
    """Return (row, before, after, after / before, the peers' ratio, the rates' ratio) for each row that changed.

    The last two runs of each row are compared. `before` and `after` are strings with the median, the range and the
    commit. The rates' ratio is before / after. Raises ValueError if no row has two runs.
    """
    path = file(processor, folder)
    seen: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        record = json.loads(line)
        seen.setdefault(record["row"], []).append(record)
    pairs = {row: records[-2:] for row, records in seen.items() if len(records) > 1}
    if not pairs:
        raise ValueError(
            f"{path.name} holds no row twice: two runs of `python3 make.py bench` on {processor} make it so"
        )
    found = []
    for row, (old, new) in pairs.items():
        (side, before), after = next(iter(old["sides"].items())), next(iter(new["sides"].values()))
        if before[1] <= after[2] and after[1] <= before[2]:
            continue
        peers = [
            new["sides"][name][0] / t[0] for name, t in old["sides"].items() if name in new["sides"] and name != side
        ]
        rates = [old["rates"][name] / new["rates"][name] for name in old["rates"]]
        found.append((
            row, *(f"{t[0]:.3g} s ({t[1]:.3g} .. {t[2]:.3g}), {r['commit']}" for t, r in ((before, old), (after, new))),
            f"{after[0] / before[0]:.2f}", f"{median(peers):.2f}" if peers else "", f"{median(rates):.2f}",
        ))  # fmt: skip
    return found
