"""Define the commands for a single task: `minintk train`, `reproduce` and `doctor`."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import numpy as np

from minintk import SGD, Cosine, Shift, WarmUp, fit, softmax_cross_entropy
from minintk.arrays import device_namespace, to_library
from minintk.lab.cli.options import DATA, DEVICE, FAILED, OK, SEED, command, option
from minintk.lab.cli.terminal import coloured, console, print_table
from minintk.validate import whole


@command(
    "train",
    "train a network of the zoo on digits, MNIST or CIFAR-10; the same command resumes an interrupted run",
    "Train a network from scratch, by hand-written backprop: SGD with momentum, a cosine schedule "
    "after a short warm-up, cross-entropy. Writes checkpoint, history and curve; after an interruption, the same "
    "command resumes from the last epoch and ends with the same weights.",
    option("network", about="mlp, lenet5, lenet, geiger_cnn, myrtle5, myrtle7, myrtle10 or wrn-DEPTH-WIDEN"),
    DATA,
    option("--width", "N", "width factor of lenet5, channels or features of others", type=int),
    option("--epochs", "N", "number of epochs", 15),
    option("--batch-size", "B", "examples per step", 64),
    option("--lr", "LR", "largest learning rate", 0.05),
    option("--momentum", "M", "", 0.9),
    option("--weight-decay", "W", "", 0.0005),
    option("--shift", "K", "shift images by up to K pixels, redrawn every epoch", 0),
    DEVICE, SEED, option("--out", "DIR", "output folder (./minintk-NETWORK)"),
)  # fmt: skip
def _train(args: Namespace) -> int:
    from minintk.lab.experiments import named

    xp = device_namespace(args.device)
    sets = named.data(args.data, flat=args.network == "mlp")
    (x, y), test = ([to_library(a, xp) for a in data.one_hot()] for data in sets)
    net = named.network(args.network, x.shape[1:], y.shape[1], args.width)
    rng = np.random.default_rng(whole("seed", args.seed, 0))
    steps = args.epochs * (len(x) // max(1, args.batch_size))
    warm = max(1, steps // 20)
    lr = WarmUp(warm, then=Cosine(args.lr, max(1, steps - warm)))
    folder, title = args.out or f"minintk-{args.network}", f"{args.network} on {sets[0].name}, {net.size:,} parameters"
    print(f"{title}; {len(x):,} images to train on, {len(test[0]):,} to test")
    run = fit(
        net, to_library(net.init(rng, dtype=np.float32), xp), x, y, loss=softmax_cross_entropy,
        optimizer=SGD(lr=lr, momentum=args.momentum, weight_decay=args.weight_decay), epochs=args.epochs,
        batch_size=args.batch_size, rng=rng, augment=Shift(args.shift) if args.shift else None,
        test=(test[0], test[1]), checkpoint=folder, progress=True,
    )  # fmt: skip
    run.history.draw(f"{folder}/curve.png", title)
    last = run.history.last
    print(f"test accuracy {last['test_accuracy']:.2%} after {last['seconds']:.0f} s; {folder}/curve.png, history.json")
    return OK


@command(
    "reproduce",
    "rerun the papers' experiments: a table of claims, the papers' numbers and ours, and the figures",
    "Run the scripts of examples/, each for one claim or figure of a paper, and print the paper's "
    "number beside ours. Writes NAME.png and NAME.json. Every run is a record in the output folder: the same "
    "command goes on after an interruption, and only draws what is complete. Exit status: 0 if all ran, 1 if not.",
    option("names", "NAME", "scripts of examples/, without .py (all)", nargs="*"),
    option("--out", "DIR", "output folder", "minintk-reproduce"),
    option("--data", "DIR", "folder with MNIST or CIFAR-10; without it, the packaged 8 x 8 digits"),
    option("--set", about="which images (mnist with --data)", choices=("digits", "mnist", "cifar10")),
    option("--scale", about="paper: the papers' sizes, a GPU", default="small", choices=("small", "evening", "paper")),
    option("--device", about="device (cpu; gpu with --scale paper)", choices=("cpu", "gpu")),
    option("--part", "I/N", "only part I of N of the runs, I from 0, as in a job array"),
)
def _reproduce(args: Namespace) -> int:
    from rich.markup import escape

    from minintk.files.writing import check_folder
    from minintk.lab.experiments.papers import rerun, scripts

    check_folder(args.out)
    if args.data is not None and not Path(args.data).is_dir():
        raise ValueError(f"data expects a folder with MNIST's or CIFAR-10's files, got {args.data!r}")
    paths = scripts(args.names)
    device = args.device or ("gpu" if args.scale == "paper" else "cpu")
    device_namespace(device)  # raises an error immediately if there is no such device
    options = {"data": args.data, "scale": args.scale, "device": device, "part": args.part}
    screen, failed, done = console(160), [], 0
    try:
        for name, found in rerun(paths, args.out, images=args.set, **options):
            done += 1
            if found is None:
                print(f"{args.prog}: error: {paths[name].name} failed", file=sys.stderr)
                failed.append(name)
                continue
            rows = [[escape(row[cell]) for cell in ("claim", "paper", "here", "verdict")] for row in found["table"]]
            print_table(screen, f"{name}, {found['data']}: {args.out}", ("claim", "paper", "here", "verdict"), rows)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{done} of {len(paths)} scripts are done, in {args.out}") from None
    if failed:
        print(f"{args.prog}: {len(failed)} of {len(paths)} scripts failed: {', '.join(failed)}", file=sys.stderr)
    return FAILED if failed else OK


@command(
    "doctor",
    "what this machine has, what will be used of it, and what is broken",
    "Versions, extras, processor, memory, GPU and folders. Exit status: 0 if nothing is broken, 1 if something is.",
    option("--compile", about="compile all loops now, not when they are first used", action="store_true"),
)
def _doctor(args: Namespace) -> int:
    from rich.markup import escape

    from minintk.lab.doctor import compile_loops, examine

    if args.compile and not compile_loops():
        print("nothing to compile: Numba is missing, pip install 'minintk[fast]'", file=sys.stderr)
        return FAILED
    found = list(examine())
    rows = [(what, coloured("fail") if broken else "", escape(text)) for what, text, broken in found]
    print_table(console(200), "this machine, for minintk", ("what", "", "found"), rows)
    return FAILED if any(broken for *_, broken in found) else OK
