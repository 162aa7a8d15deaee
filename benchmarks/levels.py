"""Count the false alarms and the refused controls in full `minintk verify --mup` runs.

    python3 make.py python benchmarks/levels.py [--minutes M] [--seed S]

Each run uses a new seed and adds a line to history/verify-mup.jsonl, {"seed", "seconds", "rows": [[law, control,
measured, verdict], ...]}. A run takes about four minutes on one core. Without --minutes, the script only counts the
recorded runs.

A run raises a false alarm if a row that is not a control fails. If none of N runs raises a false alarm, the probability
that a run does is below 1 - .05^(1/N), at 95 % confidence. The script also estimates how many of 100 runs would raise
one, drawing each row from a random recorded run, as if the rows were independent.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

from analytic.verify import laws

KEPT = Path(__file__).parent / "history" / "verify-mup.jsonl"


def run(seed: int) -> dict[str, Any]:
    """Check all laws with this seed and return the record of the run."""
    begun = time.process_time()
    rows = [[found.law, found.control, found.measured, found.verdict] for found in laws.run(seed=seed)]
    return {"seed": seed, "seconds": round(time.process_time() - begun), "rows": rows}


def report(runs: list[dict[str, Any]], seeds: int = 100) -> str:
    """Report the false alarms of the recorded and of resampled runs, and the rows that did not pass in every run."""
    rows = [[tuple(row) for row in one["rows"]] for one in runs]
    failed = np.array([[verdict == "fail" for *_, verdict in one] for one in rows])  # (runs, rows)
    alarms, N = int(failed.any(axis=1).sum()), len(runs)
    drawn = failed[np.random.default_rng(0).integers(N, size=(1000 * seeds, failed.shape[1])), range(failed.shape[1])]
    expected = seeds * float(drawn.any(axis=1).mean())
    most = float(beta.ppf(0.95, alarms + 1, N - alarms)) if alarms < N else 1.0
    passed = Counter((law, control) for one in rows for law, control, _, verdict in one if verdict == "pass")
    short = [
        f"{'control refused' if control else 'passed'} in {passed[law, control]} of {N}: {law}"
        for law, control in dict.fromkeys((law, control) for one in rows for law, control, *_ in one)
        if passed[law, control] < N
    ]
    head = f"{N} full runs, {alarms} with a false alarm (below {most:.0%} at 95 %); of {seeds} resampled {expected:.2g}"
    return "\n".join(
        [f"{head}; rows that did not pass in every run, or controls that were not refused:", *(short or ["none"])]
    )


def main() -> None:
    """Record new runs for the requested time, then print the report on all runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0.0, metavar="M", help="begin runs for so long")
    parser.add_argument("--seed", type=int, default=30000, metavar="S", help="of the first run (30000)")
    args = parser.parse_args()
    runs = [json.loads(line) for line in KEPT.read_text("utf-8").splitlines()] if KEPT.exists() else []
    end = time.monotonic() + 60 * args.minutes
    while time.monotonic() < end:
        seed = max([args.seed - 1, *(one["seed"] for one in runs)]) + 1
        runs.append(run(seed))
        with KEPT.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(runs[-1], ensure_ascii=False)}\n")
    print(report(runs))


if __name__ == "__main__":
    main()
