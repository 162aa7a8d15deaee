"""Rerun rows of docs/papers with other networks, to test whether intervals are valid and verdicts are stable.

    python3 make.py replicate [KEY ...] [--rows K] [--minutes M] [--data DIR] [--out DIR] [--first-seed S]

The script reruns all results that have verdicts and took at most M minutes on one core, or the results named by KEY
(for example, lee_cnn-cifar10).  The cheapest results are rerun first, until at least K rows have been rerun.  Each
result is computed again at the scale in table.PLAN, with seeds starting at S.  Two numbers are compared if both have an
interval, written as ± half or (low to high).  If the intervals are valid, about 95 % of the differences lie within the
root of the sum of squares of the two half-widths.  Numbers from one script share networks, so the number of larger
differences varies more than a binomial count.  A verdict flips if "yes" becomes "no" or vice versa.  Counts are stored
in docs/papers/replicated/KEY.json, and docs/papers/index.md shows the total.
"""

from __future__ import annotations

import argparse
import json
import re
from typing import Any

from papers_page import added
from table import PAGE, PLAN, kept_pages

from minintk.lab.experiments.papers import rerun, scripts

NUMBER = r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?"
INTERVAL = re.compile(rf"({NUMBER}) (?:± ({NUMBER})|\(({NUMBER}) to ({NUMBER})\))")
PLACE = PAGE.parent / "replicated"


def intervals(text: str) -> list[tuple[float, float]]:
    """Return (value, half-width) of each number with an interval, in the order of the text.

    >>> intervals("0.98 ± 0.03, b = -0.5 (-0.7 to -0.4) (x2)")
    [(0.98, 0.03), (-0.5, 0.15)]
    """
    found = []
    for value, half, low, high in INTERVAL.findall(text):
        found.append((float(value), float(half) if half else round((float(high) - float(low)) / 2, 12)))
    return found


def compared(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> dict[str, Any]:
    """Compare the rows of two runs; count numbers, differences beyond the intervals, verdicts, changes and flips."""
    found: dict[str, Any] = {"numbers": 0, "beyond": 0, "verdicts": 0, "changed": 0, "flips": []}
    for old, new in zip(before, after, strict=True):
        pairs = zip(intervals(old["here"]), intervals(new["here"]), strict=False)
        halves = [((a - b) ** 2, half**2 + other**2) for (a, half), (b, other) in pairs]
        found["numbers"] += sum(spread > 0 for _, spread in halves)  # intervals that round to 0 are not counted
        found["beyond"] += sum(off > spread > 0 for off, spread in halves)
        if not old.get("rule"):
            continue
        found["verdicts"] += 1
        found["changed"] += old["agrees"] is not new["agrees"]
        if {old["agrees"], new["agrees"]} == {True, False}:
            found["flips"].append({"claim": old["claim"], "before": old["here"], "after": new["here"]})
    return found


def main() -> None:
    """Rerun the results, compare them with the stored ones, store the counts, and print the total."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", nargs="*", metavar="KEY", help="results of docs/papers, without .json (all)")
    parser.add_argument("--rows", type=int, default=1000, metavar="K", help="rows that are enough")
    parser.add_argument("--minutes", type=float, default=10.0, metavar="M", help="of one core, by the kept run")
    parser.add_argument("--data", metavar="DIR", help="folder with MNIST and CIFAR-10; without it, the digits inside")
    parser.add_argument("--out", default="replicate-out", metavar="DIR", help="folder for runs; a later call goes on")
    parser.add_argument("--first-seed", default="20000", metavar="S", help="where seeds begin")
    args = parser.parse_args()
    kept = {path.stem: json.loads(path.read_text("utf-8")) for path in PAGE.parent.glob("*.json")}
    if unknown := [key for key in args.keys if key not in kept]:
        parser.error(f"KEY expects results of docs/papers, such as lee_cnn-cifar10, got {', '.join(unknown)}")
    chosen = [key for key, run in kept.items() if "factors" in run and run["core seconds"] <= 60 * args.minutes]
    chosen = [key for key in args.keys or chosen if args.data or kept[key]["data"] == "digits"]
    rows, paths = 0, scripts()
    for key in sorted(chosen, key=lambda key: float(kept[key]["core seconds"])):
        run = kept[key]
        if rows >= args.rows:
            break
        scale, seeds = PLAN[run["data"]][run["script"]]
        options = {"data": None if run["data"] == "digits" else args.data, "scale": scale, "seeds": str(seeds)}
        options |= {"first-seed": args.first_seed}
        for name, found in rerun({run["script"]: paths[run["script"]]}, args.out, images=run["data"], **options):
            if found is None:
                raise SystemExit(f"{name}.py failed")
            counts = compared(run["table"], found["table"])
            PLACE.mkdir(exist_ok=True)
            text = json.dumps({"first seed": args.first_seed, "counts": counts}, indent=1, ensure_ascii=False)
            (PLACE / f"{key}.json").write_text(f"{text}\n", "utf-8")
            print(f"{key}: {counts}", flush=True)
        rows += len(run["table"])
    print(f"together: {added(PLACE)}")
    for path, page in kept_pages().items():
        path.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
