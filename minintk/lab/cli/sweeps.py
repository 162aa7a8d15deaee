"""Define `minintk coordinate-check` and `minintk transfer`, which train networks of many widths or depths."""

from __future__ import annotations

import json
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minintk import Cosine, coordinate_check, learning_rate_transfer, mse
from minintk.arrays import device_namespace, to_library
from minintk.files.writing import made_folder, write_atomically
from minintk.lab.cli.options import DATA, DEVICE, FAILED, OK, SEED, command, option, whole_numbers
from minintk.validate import whole

SWEPT = (
    option("--network", "NAME", "mlp, cnn, resnet, or MODULE:FUNCTION, width -> spec", "mlp"),
    option(
        "--parametrization", "NAME", "mup, mup:BASE, mean-field, ntk, standard, pytorch, MODULE:NAME, or the exponents "
        "of input, hidden and output, A,A,A/B,B,B/C,C,C", "mup",
    ),
    option("--optimizer", default="sgd", choices=("sgd", "adam", "spectral", "muon")),
    option("--depth", "L", "hidden layers, or residual branches", 3),
    option("--depths", "L,L,...", "instead of widths: numbers of residual branches", type=whole_numbers),
    option("--width", "N", "width at --depths", 128),
    option("--activation", "NAME", "tanh, relu, erf, gelu", "tanh"),
    DATA, DEVICE, SEED,
)  # fmt: skip
"""Options of both commands: the networks, their parametrization and optimiser, the data, the device and the seed."""


def _swept(args: Namespace) -> dict[str, Any]:
    """Return the arguments that `coordinate_check` and `learning_rate_transfer` share."""
    from minintk.files.writing import check_folder
    from minintk.lab.experiments import named

    check_folder(args.out)
    for name, low in (("seed", 0), ("batch_size", 1), ("width", 1)):
        whole(name.replace("_", "-"), getattr(args, name), low)
    xp, rng = device_namespace(args.device), np.random.default_rng(args.seed)
    train, _ = named.data(args.data, flat=True)
    x, y = (to_library(a, xp) for a in train.subset(min(args.batch_size, len(train)), rng).one_hot())

    def spec(n: int) -> Any:
        depth, width = (n, args.width) if args.depths else (args.depth, n)
        return named.spec_of_width(args.network, y.shape[1], depth, args.activation)(width)

    table = named.parametrization(args.parametrization, args.optimizer)
    given = {"spec_of_width": spec, "x": x, "y": y, "loss": mse, "parametrization": table}
    return given | {"widths": args.depths or args.widths, "steps": args.steps, "rng": rng}


def _written(found: Any, args: Namespace, name: str) -> int:
    """Print the report, write NAME.png (figure), .txt (report) and .json (results), and return the exit status."""
    print(found.report())
    folder = made_folder(Path(args.out).expanduser(), "out")
    picture, text = found.plot(), f"{found.report()}\n".encode()
    about = {"command": args.command, "passed": found.passed, "report": found.report()}
    numbers = json.dumps(about | vars(found), default=_plain).encode()
    write_atomically(folder / f"{name}.png", lambda file: picture.savefig(file, dpi=110, format="png"))
    write_atomically(folder / f"{name}.txt", lambda file: file.write(text))
    write_atomically(folder / f"{name}.json", lambda file: file.write(numbers))
    print(f"{folder / f'{name}.png'}, {name}.txt, {name}.json")
    return OK if found.passed else FAILED


def _plain(thing: Any) -> Any:
    """Convert an array to a list, or an object to a dict, for JSON.  The bootstrap draws of a fit are omitted."""
    if hasattr(thing, "tolist"):
        return thing.tolist()
    return {name: value for name, value in vars(thing).items() if name != "draws"}


@command(
    "coordinate-check",
    "do all layers learn equally at every width, or depth? exponents, a figure, a verdict",
    "Train networks of growing width for a few steps and fit how the sizes of features, weights and "
    "their changes scale with the width. Exit status: 0 if every layer learns, and all are flat; 1 if not, or if "
    "undecided; the report then names the layer whose scale is wrong.",
    *SWEPT,
    option("--lr", "LR", "learning rate (sgd 0.1, adam 0.01, spectral and muon 0.02)", type=float),
    option("--widths", "N,N,...", "(64,128,...,1024; cnn 32,...,256)", type=whole_numbers),
    option("--batch-size", "B", "training images", 32),
    option("--seeds", "S", "networks at each width (16; cnn 32)", type=int),
    option("--budget", "S", "networks at each width while undecided (as --seeds)", type=int),
    option("--steps", "T", "training steps", 3),
    option("--tolerance", "B", "how far from 0 an exponent may be", 0.1),
    option("--out", "DIR", "folder for figure and report", "minintk-coordinate-check"),
)
def _coordinate_check(args: Namespace) -> int:
    from minintk.lab.experiments.named import OPTIMIZERS

    cnn, (make, lr) = args.network == "cnn", OPTIMIZERS[args.optimizer]
    args.widths = args.widths or ((32, 64, 128, 256) if cnn else (64, 128, 256, 512, 1024))
    seeds, lr = (32 if cnn else 16) if args.seeds is None else args.seeds, lr if args.lr is None else args.lr
    check = coordinate_check(
        **_swept(args), optimizer=lambda net: make(lr, net), seeds=seeds, budget=args.budget,
        tolerance=args.tolerance, progress=True,
    )  # fmt: skip
    return _written(check, args, "coordinate-check")


@command(
    "transfer",
    "is the best learning rate the same at every width, or depth? losses, a figure, a verdict",
    "Train networks of growing width at many learning rates and find the best one of each width. Exit "
    "status: 0 if the best rates are within a factor 2, 1 if not, or if one is at the edge of the rates. The rates of "
    "spectral and muon, whose steps do not shrink with the gradient, fall to 0 as a cosine.",
    *SWEPT,
    option("--rates", "LR:LR", "the least and the largest rate, steps of sqrt(2) between them; as the optimizer"),
    option("--widths", "N,N,...", "(64,128,256,512; cnn 8,16,32)", type=whole_numbers),
    option("--batch-size", "B", "training images", 96),
    option("--seeds", "S", "networks at each width", 4),
    option("--steps", "T", "training steps", 30),
    option("--out", "DIR", "folder for figure and report", "minintk-transfer"),
)
def _transfer(args: Namespace) -> int:
    from minintk.lab.experiments.named import OPTIMIZERS

    args.widths = args.widths or ((8, 16, 32) if args.network == "cnn" else (64, 128, 256, 512))
    make, usual = OPTIMIZERS[args.optimizer]
    fixed = args.optimizer in ("spectral", "muon")  # steps of fixed size converge only with a schedule
    try:
        low, high = map(float, args.rates.split(":")) if args.rates else (usual, 100 * usual)
    except ValueError:
        raise ValueError(f"rates expects LOW:HIGH, as in 0.01:1, got {args.rates!r}") from None
    rates = [low]
    while 0 < rates[-1] < high:
        rates.append(rates[-1] * 2**0.5)
    found = learning_rate_transfer(
        **_swept(args), rates=rates, optimizer=lambda lr: partial(make, Cosine(lr, args.steps) if fixed else lr),
        seeds=args.seeds, progress=True,
    )  # fmt: skip
    return _written(found, args, "transfer")
