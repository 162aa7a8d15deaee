"""The command line: `minintk verify`, `train`, `coordinate-check`, `reproduce`, `grade`; or `python -m minintk verify`.

Each command is a pair of functions: one adds its parser, the other runs it and returns the exit status: 0 success, 1 a
check failed or is undecided, 2 invalid arguments, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

import minintk

if TYPE_CHECKING:
    from minintk.verify import Result

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default sys.argv; returns the exit status.

    >>> main(["verify", "--widths", "64"])                       # the reason is on stderr
    2
    """
    parser = argparse.ArgumentParser(
        prog="minintk", description="Neural networks in every form that the theory of wide networks uses."
    )
    parser.add_argument("--version", action="version", version=f"minintk {minintk.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in COMMANDS:
        add(commands)
    try:
        args = parser.parse_args(arguments)
    except SystemExit as stop:  # argparse has printed the reason
        return int(stop.code or 0)
    try:
        status: int = args.run(args)
    except KeyboardInterrupt as stop:
        print(f"\n{args.prog}: interrupted; {str(stop) or 'nothing was written'}", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, MemoryError, ArithmeticError) as error:
        print(f"{args.prog}: error: {error}", file=sys.stderr)
        return USAGE
    return status


# ------------------------------------------------------------------------------------------------- train


def _add_train(commands: Any) -> None:
    parser = commands.add_parser(
        "train",
        help="train a network of the zoo on digits, MNIST or CIFAR-10; the same command resumes an interrupted run",
        description="Train a network from scratch, by hand-written backprop: SGD with momentum, a cosine schedule "
        "after a short warm-up, cross-entropy. Writes checkpoint, history and curve; after an interruption, the same "
        "command resumes from the last epoch and ends with the same weights.",
    )
    add = parser.add_argument
    add("network", help="mlp, lenet5, lenet, geiger_cnn, myrtle5, myrtle7, myrtle10 or wrn-DEPTH-WIDEN")
    add("--data", default="digits", metavar="NAME|DIR", help="digits, mnist, cifar10, or a folder (digits)")
    add("--width", type=int, default=None, metavar="N", help="width factor of lenet5, channels or features of others")
    add("--epochs", type=int, default=15, metavar="N", help="number of epochs (15)")
    add("--batch-size", type=int, default=64, metavar="B", help="examples per step (64)")
    add("--lr", type=float, default=0.05, metavar="LR", help="largest learning rate (0.05)")
    add("--momentum", type=float, default=0.9, metavar="M", help="(0.9)")
    add("--weight-decay", type=float, default=5e-4, metavar="W", help="(0.0005)")
    add("--shift", type=int, default=0, metavar="K", help="shift images by up to K pixels, redrawn every epoch (0)")
    add("--device", choices=("cpu", "gpu"), default="cpu", help="device for training (cpu)")
    add("--seed", type=int, default=0, metavar="K", help="seed of all random numbers (0)")
    add("--out", default=None, metavar="DIR", help="output folder (./minintk-NETWORK)")
    parser.set_defaults(run=_train, prog=parser.prog)


def _train(args: argparse.Namespace) -> int:
    import numpy as np

    from minintk import SGD, Cosine, Shift, WarmUp, fit, softmax_cross_entropy
    from minintk.arrays import device_namespace, to_library
    from minintk.experiments import named
    from minintk.validate import whole

    xp = device_namespace(args.device)
    sets = named.data(args.data, flat=args.network == "mlp")
    (x, y), test = ([to_library(a, xp) for a in data.one_hot()] for data in sets)
    net = named.network(args.network, x.shape[1:], y.shape[1], args.width)
    rng = np.random.default_rng(whole("seed", args.seed, 0))
    steps = args.epochs * (len(x) // max(1, args.batch_size))
    warm = max(1, steps // 20)
    lr = WarmUp(warm, then=Cosine(args.lr, max(1, steps - warm)))
    folder = args.out or f"minintk-{args.network}"
    title = f"{args.network} on {sets[0].name}, {net.size:,} parameters"
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


# -------------------------------------------------------------------------------------- coordinate-check


def _add_coordinate_check(commands: Any) -> None:
    parser = commands.add_parser(
        "coordinate-check",
        help="do all layers learn equally at every width? exponents, a figure, a verdict",
        description="Train networks of growing width for a few steps and fit how the sizes of features, weights and "
        "their changes scale with the width. Exit status: 0 if all layers are flat, 1 if not, or if undecided; the "
        "report then names the layer whose scale is wrong.",
    )
    add = parser.add_argument
    add("--network", default="mlp", metavar="NAME", help="mlp, cnn, resnet, or MODULE:FUNCTION, width -> spec (mlp)")
    add("--parametrization", default="mup", metavar="NAME", help="mup, mean-field, ntk, standard, pytorch (mup)")
    add("--optimizer", choices=("sgd", "adam"), default="sgd", help="(sgd)")
    add("--lr", type=float, default=None, metavar="LR", help="learning rate (sgd 0.1, adam 0.01)")
    add("--widths", type=_whole_numbers, default=None, metavar="N,N,...", help="(64,128,...,1024; cnn 32,...,256)")
    add("--depth", type=int, default=3, metavar="L", help="hidden layers, or residual branches (3)")
    add("--activation", default="tanh", metavar="NAME", help="tanh, relu, erf, gelu (tanh)")
    add("--data", default="digits", metavar="NAME|DIR", help="digits, mnist, cifar10, or a folder (digits)")
    add("--batch-size", type=int, default=32, metavar="B", help="training images (32)")
    add("--seeds", type=int, default=None, metavar="S", help="networks at each width (16; cnn 32)")
    add("--budget", type=int, default=None, metavar="S", help="networks at each width while undecided (as --seeds)")
    add("--steps", type=int, default=3, metavar="T", help="training steps (3)")
    add("--tolerance", type=float, default=0.1, metavar="B", help="how far from 0 an exponent may be (0.1)")
    add("--device", choices=("cpu", "gpu"), default="cpu", help="device for training (cpu)")
    add("--seed", type=int, default=0, metavar="K", help="seed of all random numbers (0)")
    add("--out", default="minintk-coordinate-check", metavar="DIR", help="folder for figure and report")
    parser.set_defaults(run=_coordinate_check, prog=parser.prog)


def _coordinate_check(args: argparse.Namespace) -> int:
    import numpy as np

    from minintk import SGD, Adam, coordinate_check, mse
    from minintk.arrays import device_namespace, to_library
    from minintk.experiments import named
    from minintk.files.writing import made_folder, write_atomically
    from minintk.validate import whole
    from minintk.verify.report import check_folder

    check_folder(args.out)
    whole("seed", args.seed, 0)
    whole("batch-size", args.batch_size)
    lr = args.lr if args.lr is not None else 0.1 if args.optimizer == "sgd" else 0.01
    if args.parametrization not in named.PARAMETRIZATIONS:
        raise ValueError(f"parametrization expects {', '.join(named.PARAMETRIZATIONS)}, got {args.parametrization!r}")
    xp, rng = device_namespace(args.device), np.random.default_rng(args.seed)
    train, _ = named.data(args.data, flat=True)
    x, y = (to_library(a, xp) for a in train.subset(min(args.batch_size, len(train)), rng).one_hot())
    seeds = args.seeds if args.seeds is not None else 32 if args.network == "cnn" else 16
    widths = args.widths or ((32, 64, 128, 256) if args.network == "cnn" else (64, 128, 256, 512, 1024))
    with _progress_bar() as progress:
        check = coordinate_check(
            named.spec_of_width(args.network, y.shape[1], args.depth, args.activation), x, y,
            parametrization=named.PARAMETRIZATIONS[args.parametrization](),
            optimizer=SGD(lr=lr) if args.optimizer == "sgd" else Adam(lr=lr),
            loss=mse, widths=widths, seeds=seeds, budget=args.budget,
            steps=args.steps, tolerance=args.tolerance, rng=rng,
            progress=progress,
        )  # fmt: skip
    print(check.report())
    folder = made_folder(Path(args.out).expanduser(), "out")
    picture, text = check.plot(), f"{check.report()}\n".encode()
    write_atomically(folder / "coordinate-check.png", lambda file: picture.savefig(file, dpi=110, format="png"))
    write_atomically(folder / "coordinate-check.txt", lambda file: file.write(text))
    print(f"{folder / 'coordinate-check.png'}, coordinate-check.txt")
    return OK if check.passed else FAILED


# --------------------------------------------------------------------------------------------- reproduce


def _add_reproduce(commands: Any) -> None:
    parser = commands.add_parser(
        "reproduce",
        help="rerun the papers' experiments: a table of claims, the papers' numbers and ours, and the figures",
        description="Run the scripts of examples/, each for one claim or figure of a paper, and print the paper's "
        "number beside ours. Writes NAME.png and NAME.json. Exit status: 0 if all ran, 1 if one failed to run.",
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="scripts of examples/, without .py (all)")
    add("--out", default="minintk-reproduce", metavar="DIR", help="output folder (./minintk-reproduce)")
    add("--data", default=None, metavar="DIR", help="folder with MNIST; without it, the packaged 8 x 8 digits")
    add("--scale", choices=("laptop", "paper"), default="laptop", help="paper: the paper's sizes, on a GPU (laptop)")
    add("--device", choices=("cpu", "gpu"), default=None, help="device (cpu; gpu with --scale paper)")
    parser.set_defaults(run=_reproduce, prog=parser.prog)


def _reproduce(args: argparse.Namespace) -> int:
    from rich.markup import escape

    from minintk.arrays import device_namespace
    from minintk.experiments.papers import chosen, rerun
    from minintk.verify.report import check_folder

    check_folder(args.out)
    if args.data is not None and not Path(args.data).is_dir():
        raise ValueError(f"data expects a folder with MNIST's files, got {args.data!r}")
    paths = chosen(args.names)
    device = args.device or ("gpu" if args.scale == "paper" else "cpu")
    device_namespace(device)  # fails now if there is no such device
    console, failed, done = _console(160), [], 0
    try:
        for name, found in rerun(paths, args.out, data=args.data, scale=args.scale, device=device):
            done += 1
            if found is None:
                print(f"{args.prog}: error: {paths[name].name} failed", file=sys.stderr)
                failed.append(name)
                continue
            table = _table(f"{name}: {found['seconds']:.0f} s, {args.out}/{name}.png", "claim", "paper", "here")
            for row in found["table"]:
                table.add_row(*map(escape, row))
            console.print(table, "")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{done} of {len(paths)} scripts are done, in {args.out}") from None
    if failed:
        print(f"{args.prog}: {len(failed)} of {len(paths)} scripts failed: {', '.join(failed)}", file=sys.stderr)
    return FAILED if failed else OK


# ------------------------------------------------------------------------------------------------- grade


def _add_grade(commands: Any) -> None:
    parser = commands.add_parser(
        "grade",
        help="grade a submission: scores and reasons, for the terminal, a CI or Gradescope",
        description="Run an assignment's exercises on a submission, in a process of its own that holds no answers, and "
        "say what is wrong with it. Exit status: 0 with full points, 1 with fewer.",
    )
    add = parser.add_argument
    add("assignment", metavar="ASSIGNMENT", help="a folder with exercises.py, or its name in ./course")
    add("submission", metavar="SUBMISSION", help="the student's Python file")
    add("--seed", default="public", metavar="S", help="the instructor's secret, or @FILE that holds it (public)")
    add("--only", action="append", default=[], metavar="NAME", help="only this exercise; may be given again")
    add("--public", action="store_true", help="leave hidden exercises out")
    add("--in-process", action="store_true", help="without a process of its own: no time limit, not for marks")
    add("--junit", metavar="FILE", help="write JUnit's XML")
    add("--gradescope", metavar="FILE", help="write Gradescope's results.json")
    add("--html", metavar="FILE", help="write a page")
    parser.set_defaults(run=_grade, prog=parser.prog)


def _grade(args: argparse.Namespace) -> int:
    from rich.markup import escape

    from minintk.files.writing import write_atomically
    from minintk.grade import grade, load, reports

    seed = Path(args.seed[1:]).read_text(encoding="utf-8").strip() if args.seed.startswith("@") else args.seed
    found = grade(
        load(args.assignment), args.submission, seed=seed, isolated=not args.in_process, hidden=not args.public,
        only=args.only,
    )  # fmt: skip
    for name in ("junit", "gradescope", "html"):
        if path := getattr(args, name):
            write_atomically(path, methodcaller("write", getattr(reports, name)(found).encode()))
    table = _table(f"{found.assignment}, {found.submission}", *reports.COLUMNS)
    for row in reports.rows(found):
        table.add_row(*map(escape, row))
    _console(120).print(table, "", f"{found.score:g} of {found.points:g} points", sep="\n")
    return OK if found.score == found.points else FAILED


# ------------------------------------------------------------------------------------------------ verify


def _add_verify(commands: Any) -> None:
    parser = commands.add_parser(
        "verify",
        help="real networks against infinite-width theory: figures, exponents, a verdict",
        description="Train networks of growing width on real digits, by hand-written backprop, and compare them with "
        "the predictions of infinite-width theory. Exit status: 0 if the theory holds, 1 if it fails or is undecided.",
    )
    add = parser.add_argument
    add("--widths", type=_whole_numbers, metavar="N,N,...", help="widths of the hidden layers (32,64,...,2048)")
    add("--depth", type=int, default=2, metavar="L", help="hidden layers (2)")
    add(
        "--activation",
        type=_names,
        default=("relu", "erf"),
        metavar="NAME,...",
        help="relu,erf; or tanh, gelu, ... (relu,erf)",
    )
    add(
        "--data",
        default="digits",
        metavar="NAME|DIR",
        help="digits, mnist, cifar10, or a folder with their files (digits)",
    )
    add("--seeds", type=int, default=None, metavar="S", help="networks at each width (48, fewer where they cost more)")
    add("--device", choices=("cpu", "gpu"), default="cpu", help="device for training (cpu)")
    add("--out", default="minintk-verify", metavar="DIR", help="folder for the report (./minintk-verify)")
    add("--seed", type=int, default=0, metavar="K", help="seed of all random numbers (0)")
    parser.set_defaults(run=_verify, prog=parser.prog)


def _verify(args: argparse.Namespace) -> int:
    from minintk import verify
    from minintk.verify.experiment import WIDTHS
    from minintk.verify.report import check_folder

    check_folder(args.out)
    with _progress_bar() as progress:
        result = verify.run(
            widths=args.widths or WIDTHS,
            depth=args.depth,
            activations=args.activation,
            data=args.data,
            seeds=args.seeds,
            device=args.device,
            seed=args.seed,
            progress=progress,
        )
        progress(1.0, "drawing the report")
        path = verify.write(result, args.out, command=_command(args))
    _show(result)
    print(f"report: {path}")
    return OK if result.verdict == "pass" else FAILED


def _command(args: argparse.Namespace) -> str:
    """The command line that produces this result."""
    words = ["minintk verify"]
    for name in ("widths", "depth", "activation", "data", "seeds", "device", "seed"):
        value = getattr(args, name)
        if value is not None:
            words.append(f"--{name} {','.join(map(str, value)) if isinstance(value, tuple) else value}")
    return " ".join(words)


def _show(result: Result) -> None:
    """The tables, in the terminal."""
    from minintk.verify.text import SUMMARY, interval_of, signed, theory_of, wanted, z_text

    console = _console(110)
    for activation, study in result.studies.items():
        table = _table(
            f"{activation}: error ~ n^b in the width n", "what", "theory b", "fitted b", "95 % interval", "verdict"
        )
        for row in study.rows:
            numbers = theory_of(row), signed(row.fit.exponent), interval_of(row)
            table.add_row(row.claim.title, *numbers, _coloured(row.verdict))
        console.print(table, "")
        who = f"{study.ensemble.f.shape[1]} trained networks of width {study.ensemble.width}"
        table = _table(f"{activation}: {who} against eqs. (14), (15)", "what", "t (steps)", "z", "wanted", "verdict")
        for test in study.tests:
            table.add_row(test.title, f"{test.t:g}", z_text(test.z), wanted(test), _coloured(test.verdict))
        console.print(table, "")
    passed, total = sum(verdict == "pass" for verdict in result.verdicts), len(result.verdicts)
    checks = f"{passed} of {total} checks pass, {result.seconds:.0f} s."
    console.print(f"{_coloured(result.verdict)}: {SUMMARY[result.verdict]} {checks}")


def _console(width: int) -> Any:
    """stdout with colours, as wide as the terminal, or of this width where there is none."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else width)


def _table(title: str, *columns: str) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column)
    return table


def _coloured(verdict: str) -> str:
    colour = {"pass": "green", "fail": "bold red", "undecided": "bold yellow"}[verdict]
    return f"[{colour}]{verdict}[/]"


@contextmanager
def _progress_bar() -> Iterator[Callable[[float, str], None]]:
    """A progress bar on a terminal, silence elsewhere."""
    if not sys.stderr.isatty():
        yield lambda fraction, doing: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    left = (TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.description}"))
    columns = (BarColumn(), TextColumn("{task.percentage:3.0f} %"), TimeElapsedColumn(), *left)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda fraction, doing: bar.update(task, completed=fraction, description=doing)


def _whole_numbers(text: str) -> tuple[int, ...]:
    """32,64,128 as numbers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expects whole numbers separated by commas, 32,64,128, got {text!r}"
        ) from None


def _names(text: str) -> tuple[str, ...]:
    """relu,erf as names."""
    return tuple(part.strip().lower() for part in text.split(","))


COMMANDS: tuple[Callable[[Any], None], ...] = (
    _add_verify, _add_train, _add_coordinate_check, _add_reproduce, _add_grade,
)  # fmt: skip
