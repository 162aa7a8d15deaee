"""Run the scripts that rerun papers, and store their tables and figures in docs/papers.

    python3 make.py python examples/table.py [NAME ...] [--data DIR] [--out DIR] [--first-seed S]

The script runs the entries of `PLAN` and records each run in the folder --out.  If it is interrupted, repeat the
command to resume.  The rows of a result are stored as docs/papers/KEY.json, and the figure as KEY.png in 128 colours.
After each script, the pages are rewritten from all stored results.  Without --data, only scripts on the packaged digits
run.  With --ran, no script runs, and the results already in --out are stored.
"""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path

from papers_page import added, digits_page, page, paper_pages
from PIL import Image

from minintk.lab.experiments.papers import EXAMPLES, rerun, scripts

PLAN = {
    "digits": {
        "lee_ensemble": ("small", 400), "lee_linearisation": ("small", 10), "lee_monte_carlo": ("small", 48),
        "lee_movement": ("small", 6), "lee_parametrizations": ("small", 24), "lee_width_and_data": ("small", 10),
    },
    "mnist": {
        "linear_until_t1": ("paper", 10), "spectrum_of_lenet": ("small", 8), "lee_cross_entropy": ("evening", 12),
        "lee_function_space": ("evening", 8), "lee_monte_carlo": ("evening", 36), "lee_ensemble": ("evening", 1500),
        "kernel_movement_phase": ("small", 76), "lee_width_and_data": ("evening", 10),
        "lee_parametrizations": ("evening", 24), "lenet_and_its_linearisation": ("small", 6),
        "time_to_learn": ("small", 10), "kernel_movement_exponents": ("small", 32), "lee_movement": ("evening", 16),
        "iterative_linearisation": ("evening", 2), "lazy_and_feature_phase": ("small", 30),
        "frozen_final_kernel": ("small", 10), "mup_lecture": ("small", 40),
        "interpolation_threshold": ("small", 8), "feature_learning_in_a_cnn": ("small", 6),
        "exact_linearised_lenet": ("evening", 5), "trajectories_of_lenet": ("small", 12),
    },
    "cifar10": {
        "lee_convolutional_kernels": ("evening", 32), "lee_cnn": ("evening", 12), "lee_linearisation": ("evening", 14),
        "lee_wide_resnet": ("evening", 32), "lenet_and_its_linearisation": ("small", 4),
        "reduced_alexnet": ("evening", 4), "iterative_linearisation": ("evening", 2),
    },
}  # fmt: skip
"""The results on the pages as {data: {script: (scale, seeds)}}, with the cheapest scripts first."""
PAGE = EXAMPLES.parent / "docs" / "papers" / "index.md"


def keep(name: str, kind: str, out: Path) -> None:
    """Copy the rows, the run time and the figure of one result from the folder `out` to docs/papers."""
    key = name if kind == "digits" else f"{name}-{kind}"
    found = json.loads((out / f"{key}.json").read_text("utf-8"))
    spent = json.loads((out / f"{key}.time.json").read_text("utf-8"))
    kept = {
        "script": name,
        "data": found["data"],
        "scale": found["scale"],
        "sizes": found["sizes"],
        "papers": found["papers"],
        "factors": found["factors"],
        "first seed": found["first seed"],
        "core seconds": round(spent["core seconds"]),
    }
    rows = [row | {"why": row["why"] if row["agrees"] is False else ""} for row in found["table"]]
    text = json.dumps(kept | {"table": rows}, indent=1, ensure_ascii=False)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    (PAGE.parent / f"{key}.json").write_text(f"{text}\n", "utf-8")
    with Image.open(out / f"{key}.png") as drawn:
        drawn.convert("RGB").quantize(128).save(PAGE.parent / f"{key}.png", optimize=True)


def kept_pages() -> dict[Path, str]:
    """Return {path: text} for all pages, made from the results in docs/papers."""
    docs = {name: ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "" for name, path in scripts().items()}
    files = sorted(PAGE.parent.glob("*.json"))
    kept = {path.stem: json.loads(path.read_text("utf-8")) for path in files}
    again = added(PAGE.parent / "replicated")
    pages = {"index": page(kept, docs, again), "digits": digits_page(kept, docs)} | paper_pages(kept, docs)
    return {PAGE.with_name(f"{name}.md"): text for name, text in pages.items()}


def main() -> None:
    """Run the scripts, and rewrite the pages after each one, so that an interruption loses at most one result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts, without .py (all)")
    parser.add_argument("--out", default="examples-out", metavar="DIR", help="folder for runs, figures and numbers")
    parser.add_argument("--data", metavar="DIR", help="folder with MNIST and CIFAR-10; without it, the digits inside")
    parser.add_argument("--first-seed", default="10000", metavar="S", help="where seeds begin: networks of their own")
    parser.add_argument("--device", choices=("cpu", "gpu"))
    parser.add_argument("--ran", action="store_true", help="run nothing: keep what --out already holds")
    args = parser.parse_args()
    paths, out = scripts(args.names), Path(args.out)
    plan = [(kind, name, *how) for kind, runs in PLAN.items() for name, how in runs.items() if name in paths]
    for kind, name, scale, seeds in plan:
        if kind != "digits" and not args.data and not args.ran:
            continue
        options = {"data": None if kind == "digits" else args.data, "scale": scale, "device": args.device}
        options |= {"seeds": str(seeds), "first-seed": args.first_seed}
        if not args.ran:
            for _, found in rerun({name: paths[name]}, args.out, images=kind, **options):
                if found is None:
                    raise SystemExit(f"{name}.py failed")
        keep(name, kind, out)
        for path, text in kept_pages().items():
            path.write_text(text, "utf-8")
        print(f"{name}, {kind}: kept", flush=True)


if __name__ == "__main__":
    main()
