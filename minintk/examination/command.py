"""Define the command `minintk examine`, which `minintk.lab.cli` imports by name."""

from __future__ import annotations

import runpy
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

import minintk as mn
from minintk.examination.examine import examine
from minintk.files.reading import read_npz, reading
from minintk.files.writing import check_folder
from minintk.lab.cli.options import FAILED, OK, SEED, UNDECIDED, command, option
from minintk.models.network import Network
from minintk.validate import whole

EXPECTED = "a network, (net, theta) as of mn.lift, a torch.nn.Module, or a function without arguments that returns one"
LOSSES = {"mse": mn.mse, "cross-entropy": mn.softmax_cross_entropy}


def loaded(place: str, data: str, rng: np.random.Generator) -> tuple[Network, Any, Any, Any]:
    """Load (net, theta, x, y) from FILE.py:NAME and `data`.  Lift torch modules, and draw theta if it is missing."""
    file, colon, name = place.rpartition(":")
    path = Path(file).expanduser()
    if not colon or not path.is_file():
        raise ValueError(f"examine expects FILE.py:NAME, got {place!r}: name {EXPECTED}")
    sys.path.insert(0, str(path.resolve().parent))  # as Python does for a script
    try:
        names = runpy.run_path(str(path))
        if name not in names:
            raise ValueError(f"{file} has no {name!r}: name {EXPECTED}")
        found = names[name]
        ready = isinstance(found, Network) or (hasattr(found, "state_dict") and not isinstance(found, type))
        found = found() if callable(found) and not ready else found
    finally:
        sys.path.pop(0)
    x, y = examples(data)
    found = mn.lift(found, x.shape[1:]) if hasattr(found, "state_dict") else found
    net, theta = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    if not isinstance(net, Network):
        raise TypeError(f"{place} expects {EXPECTED}, got {found!r:.80}")
    return net, net.init(rng) if theta is None else theta, x, y


def examples(path: str) -> tuple[Any, Any]:
    """Return x and y from an .npz file, in float32.  Class labels of shape (N,) become one-hot rows."""
    remedy = "write it by np.savez(path, x=x, y=y)"
    with reading(path, "an .npz file with arrays x and y", remedy) as file:
        arrays = read_npz(file)
    if not {"x", "y"} <= set(arrays):
        raise ValueError(f"{path} expects arrays x and y, got {', '.join(arrays)}: {remedy}")
    x, y = arrays["x"], arrays["y"]
    if y.dtype.kind in "iu" and y.ndim == 1:
        y = np.eye(int(y.max(initial=0)) + 1)[[whole("a class in y", n, 0) for n in y]]
    return x.astype(np.float32), y.astype(np.float32).reshape(len(y), -1)


@command(
    "examine",
    "your network: lazy or rich, which rate is safe, what moves, what is wrong, and what to do",
    "Train a network and its linearisation alike, with replicates for intervals. Prints the report and writes it as a "
    "page with figures. Exit status: 0 without findings, 1 with findings, 3 if only the regime is undecided.",
    option("network", "FILE.py:NAME", EXPECTED),
    option("--data", "X.npz", "arrays x (N, ...) and y: (N, C), or classes (N,)", required=True),
    option("--lr", "LR", "rate to examine (a quarter of the largest stable one)", type=float),
    option("--loss", about="as in mn.mse or torch.nn.CrossEntropyLoss", default="mse", choices=tuple(LOSSES)),
    option("--steps", "T", "steps of each run (200, fewer where they cost much)", type=int),
    option("--examples", "N", "examples used (256, fewer where they cost much)", type=int),
    option("--replicates", "R", "networks, or halves of the examples, for intervals", 5),
    option("--seconds", "S", "what costs more is left out and named", 80.0),
    option("--no-widths", about="leave out networks of other widths", action="store_true"),
    option("--out", "DIR", "folder for the report", "minintk-examine"),
    SEED,
)
def _examine(args: Namespace) -> int:
    check_folder(args.out)
    rng = np.random.default_rng(args.seed)
    report = examine(
        *loaded(args.network, args.data, rng), loss=LOSSES[args.loss], lr=args.lr, steps=args.steps, rng=rng,
        examples=args.examples, replicates=args.replicates, widths=not args.no_widths, seconds=args.seconds,
        progress=lambda text: print(text, file=sys.stderr),
    )  # fmt: skip
    print(report)
    print(f"report: {report.write(args.out)}")
    return FAILED if report.findings else UNDECIDED if report.regime == "undecided" else OK
