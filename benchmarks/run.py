"""Run the benchmarks of minintk and its peers, and print a table for each row.

    python benchmarks/run.py                         everything; writes benchmarks/results.md and results.json
    python benchmarks/run.py --quick --rows 'NNGP'   fewer rounds, and only the rows whose name matches
    python benchmarks/run.py --device gpu            only our sides, on the GPU
    python benchmarks/run.py --moved                 the rows that changed in the last run of this processor

The peers' virtual environments are created on the first run. The exit status is 1 if minintk fails or gives a wrong
answer, and 2 if no row matches. With --moved, it is 1 if a row became slower.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

try:
    import accuracy
    import environments
    import harness
    import history
    import imports
    import report
    from rows import TIMED
except ImportError as error:
    raise SystemExit(f"{error}: run this in minintk's own environment, `python3 make.py bench`") from error

ACCURACY, IMPORTS = "accuracy of the NTK on hard pairs", "import time (target: 300 ms)"


def main() -> int:
    """Measure the selected rows, print and write the results, and return the exit status."""
    parser = argparse.ArgumentParser(description="minintk beside its peers")
    parser.add_argument("--rows", default="", metavar="PATTERN", help="only the rows whose names match")
    parser.add_argument("--list", action="store_true", help="print the rows' names and stop")
    parser.add_argument("--quick", action="store_true", help="three short rounds in place of five")
    parser.add_argument("--moved", action="store_true", help="compare the last two runs of this processor and stop")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="cores each side may use")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="where our sides run; on the GPU alone")
    parser.add_argument("--out", type=Path, metavar="STEM", help="write STEM.md and STEM.json")
    options = parser.parse_args()

    names = [name for name in (*TIMED, ACCURACY, IMPORTS) if re.search(options.rows, name)]
    if options.list or not names:
        print("\n".join(names) or f"no row's name matches {options.rows!r}; --list shows them")
        return 0 if names else 2
    if options.moved:
        head = ("row", "before", "after", "after / before", "its peers", "slower machine")
        try:
            lines = history.moved(report.machine(0, "")["processor"])
        except ValueError as error:
            raise SystemExit(str(error)) from None
        print(report.table(head, lines) if lines else "no row moved beyond its range")
        return int(any(float(line[3]) > 1 for line in lines))
    available = ["ours"] if options.device == "gpu" else ["ours", "jax", "torch"]
    for environment in available:
        environments.ensure(environment)

    rounds, turn = (3, 0.1) if options.quick else (5, 0.2)
    rates = harness.rates(options.threads)
    rows: list[tuple[str, str, list[harness.Measured]]] = []
    errors: list[accuracy.Errors] = []
    sections: list[str] = []
    for name in names:
        if name == ACCURACY:
            errors = list(accuracy.measure(available, options.device))
            sections.append(report.accuracy(errors))
        elif name == IMPORTS:
            rows.append((name, "import", imports.measure(available, rounds)))
            sections.append(report.timed(*rows[-1]))
        else:
            row = TIMED[name]
            seen = harness.measure(
                row, available, rounds=rounds, turn=turn, threads=options.threads, device=options.device
            )
            rows.append((name, row.unit, seen))
            sections.append(report.timed(*rows[-1], row.limit(rates), row.entries))
        print("\n" + sections[-1], flush=True)

    about, found = report.machine(options.threads, options.device, rates), report.versions(rows)
    partial = options.quick or options.rows or options.device != "cpu"
    stem = options.out or (None if partial else HERE / "results")
    if stem is not None:
        before = stem.with_suffix(".md").read_text() if stem.with_suffix(".md").exists() else ""
        report.write(stem, report.markdown(about, found, sections, before), about, found, rows, errors)
        print(f"\nwrote {stem.with_suffix('.md').name} and {stem.with_suffix('.json').name}")
    if options.device == "cpu" and not options.quick:
        history.note(about["processor"], rates, rows)
    ours = [sides[0] for _, _, sides in rows]
    failed = [one for one in ours if one.failed or not one.right] + [
        e for e in errors if e.failed and e.side == "minintk"
    ]
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
