"""`minintk reproduce`: the experiments of the papers."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from minintk.arrays import device_namespace
from minintk.cli.options import FAILED, OK, command, option
from minintk.cli.terminal import console, print_table


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
    option(
        "--scale", about="paper: the papers' sizes, on a GPU", default="small", choices=("small", "evening", "paper")
    ),
    option("--device", about="device (cpu; gpu with --scale paper)", choices=("cpu", "gpu")),
    option("--part", "I/N", "only part I of N of the runs, I from 0, as in a job array"),
)
def _reproduce(args: Namespace) -> int:
    from rich.markup import escape

    from minintk.experiments.papers import chosen, rerun
    from minintk.verify.report import check_folder

    check_folder(args.out)
    if args.data is not None and not Path(args.data).is_dir():
        raise ValueError(f"data expects a folder with MNIST's or CIFAR-10's files, got {args.data!r}")
    paths = chosen(args.names)
    device = args.device or ("gpu" if args.scale == "paper" else "cpu")
    device_namespace(device)  # fails now if there is no such device
    options = {"data": args.data, "scale": args.scale, "device": device, "part": args.part}
    screen, failed, done = console(160), [], 0
    try:
        for name, found in rerun(paths, args.out, images=args.set, **options):
            done += 1
            if found is None:
                print(f"{args.prog}: error: {paths[name].name} failed", file=sys.stderr)
                failed.append(name)
                continue
            rows = [[escape(row[cell]) for cell in ("claim", "paper", "here")] for row in found["table"]]
            print_table(screen, f"{name}, {found['data']}: {args.out}", ("claim", "paper", "here"), rows)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{done} of {len(paths)} scripts are done, in {args.out}") from None
    if failed:
        print(f"{args.prog}: {len(failed)} of {len(paths)} scripts failed: {', '.join(failed)}", file=sys.stderr)
    return FAILED if failed else OK
