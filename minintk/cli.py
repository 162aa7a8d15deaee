"""The command line: `minintk verify`, `train`, `coordinate-check`, `transfer`, `reproduce`, `grade`, `doctor`.

The same by `python -m minintk verify`.

Each command is a function of the parsed arguments, with its options above it, that returns the exit status: 0 success,
1 a check failed or is undecided, 2 invalid arguments, 130 interrupted.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

import minintk

if TYPE_CHECKING:
    from minintk.verify import Result

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

Run = Callable[[argparse.Namespace], int]
Option = tuple[str, dict[str, Any]]

COMMANDS: dict[str, tuple[Run, str, str, tuple[Option, ...]]] = {}
"""{name: (function, help, description, options)}, filled by `_command`."""


def _option(name: str, metavar: str | None = None, about: str = "", default: Any = None, **more: Any) -> Option:
    """An option, or an argument; its help ends with the default, whose type it has.  more : for `add_argument`."""
    if default is not None:
        about, more = f"{about} ({default})".lstrip(), {"type": type(default), "default": default} | more
    return name, {
        key: value for key, value in (more | {"metavar": metavar, "help": about}).items() if value is not None
    }


def _command(name: str, brief: str, description: str, *options: Option) -> Callable[[Run], Run]:
    """Registers the function below it as a command."""

    def register(run: Run) -> Run:
        COMMANDS[name] = run, brief, description, options
        return run

    return register


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
    for name, (run, brief, description, options) in COMMANDS.items():
        command = commands.add_parser(name, help=brief, description=description)
        for option, about in options:
            command.add_argument(option, **about)
        command.set_defaults(run=run, prog=command.prog)
    try:
        args = parser.parse_args(arguments)
        args.command = shlex.join(["minintk", *(sys.argv[1:] if arguments is None else arguments)])
    except SystemExit as stop:  # argparse has printed the reason
        return int(stop.code or 0)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a console of Windows, or its pipe, may know no Greek
            stream.reconfigure(errors="replace")
    try:
        status: int = args.run(args)
    except KeyboardInterrupt as stop:
        print(f"\n{args.prog}: interrupted; {str(stop) or 'nothing was written'}", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, MemoryError, ArithmeticError) as error:
        print(f"{args.prog}: error: {error}", file=sys.stderr)
        return USAGE
    return status


def _whole_numbers(text: str) -> tuple[int, ...]:
    """32,64,128 as numbers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expects whole numbers separated by commas, 32,64, got {text!r}") from None


def _names(text: str) -> tuple[str, ...]:
    """relu,erf as names."""
    return tuple(part.strip().lower() for part in text.split(","))


DATA = _option("--data", "NAME|DIR", "digits, mnist, cifar10, or a folder with their files", "digits")
DEVICE = _option("--device", about="device for training", default="cpu", choices=("cpu", "gpu"))
SEED = _option("--seed", "K", "seed of all random numbers", 0)


# ------------------------------------------------------------------------------------------------ verify


@_command(
    "verify",
    "real networks against infinite-width theory: figures, exponents, a verdict",
    "Train networks of growing width on real digits, by hand-written backprop, and compare them with "
    "the predictions of infinite-width theory. Exit status: 0 if the theory holds, 1 if it fails or is undecided.",
    _option("--widths", "N,N,...", "widths of the hidden layers (32,64,...,2048)", type=_whole_numbers),
    _option("--depth", "L", "hidden layers", 2),
    _option("--activation", "NAME,...", "relu,erf; or tanh, gelu, ...", "relu,erf", type=_names),
    DATA,
    _option("--seeds", "S", "networks at each width (48, fewer where they cost more)", type=int),
    DEVICE,
    _option("--draw", "N", "instead: the law of width on N random networks, and controls; 0: these alone", type=int),
    _option("--mup", "LAW", "instead: the laws of networks whose features move, all or some, and controls", nargs="*"),
    _option("--out", "DIR", "folder for the report", "minintk-verify"),
    SEED,
)
def _verify(args: argparse.Namespace) -> int:
    from minintk import verify
    from minintk.verify.experiment import WIDTHS
    from minintk.verify.report import check_folder

    check_folder(args.out)
    if args.draw is not None:
        return _verify_draws(args)
    if args.mup is not None:
        return _verify_mup(args)
    with _progress_bar() as progress:
        result = verify.run(
            widths=args.widths or WIDTHS, depth=args.depth, activations=args.activation, data=args.data,
            seeds=args.seeds, device=args.device, seed=args.seed, progress=progress,
        )  # fmt: skip
        progress(1.0, "drawing the report")
        path = verify.write(result, args.out, command=args.command)
    _show(result)
    print(f"report: {path}")
    return OK if result.verdict == "pass" else FAILED


def _verify_draws(args: argparse.Namespace) -> int:
    """The gate on random networks; the same command goes on after an interruption."""
    from minintk.fast.threads import cores
    from minintk.validate import whole
    from minintk.verify import draw_report as report

    whole("draw", args.draw, 0)
    settings: Any = {"seed": whole("seed", args.seed, 0), "processes": cores(), "progress": True}
    law, controls = report.draws(args.draw, f"{args.out}/draws", **settings)
    report.draw_figure(law, controls, Path(args.out) / "draws.png")
    console, columns = _console(160), ("network", "exponent", "verdict", "rounds")
    for title, records in (("the law: sup |f - f_lin| falls as n^-1/2 or faster", law), ("controls", controls)):
        _print_table(console, title, columns, report.rows(records))
    columns = "exponent of", "theory", "smooth", "ReLU family"
    _print_table(console, "mean exponents over the draws", columns, report.by_class(law))
    passed, text = report.summary(law, controls)
    console.print(f"{_coloured('pass' if passed else 'fail')}: {text} figure: {args.out}/draws.png")
    return OK if passed else FAILED


def _verify_mup(args: argparse.Namespace) -> int:
    """Each finding as it comes, the report at the end."""
    from minintk.validate import whole
    from minintk.verify import laws

    console, findings = _console(160), []
    for found in laws.run(args.mup, seed=whole("seed", args.seed, 0)):
        law, expected, measured, said, seconds = laws.cells(found)
        console.print(f"{_coloured(found.verdict, said)}  {law}: {measured}; theory {expected} ({seconds} s)")
        findings.append(found)
    verdict, path = laws.verdict(findings), laws.write(findings, args.out, args.command)
    passed = sum(found.verdict == "pass" for found in findings)
    console.print(f"{_coloured(verdict)}: {passed} of {len(findings)} rows hold, controls included. report: {path}")
    return OK if verdict == "pass" else FAILED


def _show(result: Result) -> None:
    """The tables, in the terminal."""
    from minintk.verify.claims import SUMMARY

    console = _console(110)
    for activation, study in result.studies.items():
        rows = [(row.claim.title, *row.cells, _coloured(row.verdict)) for row in study.rows]
        columns = "what", "theory b", "fitted b", "95 % interval", "verdict"
        _print_table(console, f"{activation}: error ~ n^b in the width n", columns, rows)
        tests = [(test.title, *test.cells, _coloured(test.verdict)) for test in study.tests]
        who = f"{study.ensemble.f.shape[1]} trained networks of width {study.ensemble.width}"
        columns = "what", "t (steps)", "z", "wanted", "verdict"
        _print_table(console, f"{activation}: {who} against eqs. (14), (15)", columns, tests)
    passed, total = sum(verdict == "pass" for verdict in result.verdicts), len(result.verdicts)
    checks = f"{passed} of {total} checks pass, {result.seconds:.0f} s."
    console.print(f"{_coloured(result.verdict)}: {SUMMARY[result.verdict]} {checks}")


# ------------------------------------------------------------------------------------------------- train


@_command(
    "train",
    "train a network of the zoo on digits, MNIST or CIFAR-10; the same command resumes an interrupted run",
    "Train a network from scratch, by hand-written backprop: SGD with momentum, a cosine schedule "
    "after a short warm-up, cross-entropy. Writes checkpoint, history and curve; after an interruption, the same "
    "command resumes from the last epoch and ends with the same weights.",
    _option("network", about="mlp, lenet5, lenet, geiger_cnn, myrtle5, myrtle7, myrtle10 or wrn-DEPTH-WIDEN"),
    DATA,
    _option("--width", "N", "width factor of lenet5, channels or features of others", type=int),
    _option("--epochs", "N", "number of epochs", 15),
    _option("--batch-size", "B", "examples per step", 64),
    _option("--lr", "LR", "largest learning rate", 0.05),
    _option("--momentum", "M", "", 0.9),
    _option("--weight-decay", "W", "", 0.0005),
    _option("--shift", "K", "shift images by up to K pixels, redrawn every epoch", 0),
    DEVICE,
    SEED,
    _option("--out", "DIR", "output folder (./minintk-NETWORK)"),
)
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


# --------------------------------------------------------------------------- coordinate-check, transfer


SWEPT = (
    _option("--network", "NAME", "mlp, cnn, resnet, or MODULE:FUNCTION, width -> spec", "mlp"),
    _option(
        "--parametrization", "NAME", "mup, mup:BASE, mean-field, ntk, standard, pytorch, MODULE:NAME, or the exponents "
        "of input, hidden and output, A,A,A/B,B,B/C,C,C", "mup",
    ),
    _option("--optimizer", default="sgd", choices=("sgd", "adam", "spectral", "muon")),
    _option("--depth", "L", "hidden layers, or residual branches", 3),
    _option("--depths", "L,L,...", "instead of widths: numbers of residual branches", type=_whole_numbers),
    _option("--width", "N", "width at --depths", 128),
    _option("--activation", "NAME", "tanh, relu, erf, gelu", "tanh"),
    DATA,
    DEVICE,
    SEED,
)  # fmt: skip
"""What the two commands share: which networks grow, how they are trained, on what."""


def _swept(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `coordinate_check` and `learning_rate_transfer` that the options of SWEPT give."""
    import numpy as np

    from minintk import mse
    from minintk.arrays import device_namespace, to_library
    from minintk.experiments import named
    from minintk.validate import whole
    from minintk.verify.report import check_folder

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


def _written(found: Any, args: argparse.Namespace, name: str) -> int:
    """Prints the report; writes figure, report and numbers, NAME.png, NAME.txt, NAME.json; the exit status."""
    import json

    from minintk.files.writing import made_folder, write_atomically

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
    """What JSON does not know: arrays as lists, objects by their fields, but for a fit's bootstrap."""
    if hasattr(thing, "tolist"):
        return thing.tolist()
    return {name: value for name, value in vars(thing).items() if name != "draws"}


@_command(
    "coordinate-check",
    "do all layers learn equally at every width, or depth? exponents, a figure, a verdict",
    "Train networks of growing width for a few steps and fit how the sizes of features, weights and "
    "their changes scale with the width. Exit status: 0 if every layer learns, and all are flat; 1 if not, or if "
    "undecided; the report then names the layer whose scale is wrong.",
    *SWEPT,
    _option("--lr", "LR", "learning rate (sgd 0.1, adam 0.01, spectral and muon 0.02)", type=float),
    _option("--widths", "N,N,...", "(64,128,...,1024; cnn 32,...,256)", type=_whole_numbers),
    _option("--batch-size", "B", "training images", 32),
    _option("--seeds", "S", "networks at each width (16; cnn 32)", type=int),
    _option("--budget", "S", "networks at each width while undecided (as --seeds)", type=int),
    _option("--steps", "T", "training steps", 3),
    _option("--tolerance", "B", "how far from 0 an exponent may be", 0.1),
    _option("--out", "DIR", "folder for figure and report", "minintk-coordinate-check"),
)
def _coordinate_check(args: argparse.Namespace) -> int:
    from minintk import coordinate_check
    from minintk.experiments.named import OPTIMIZERS

    cnn, (make, lr) = args.network == "cnn", OPTIMIZERS[args.optimizer]
    args.widths = args.widths or ((32, 64, 128, 256) if cnn else (64, 128, 256, 512, 1024))
    seeds, lr = (32 if cnn else 16) if args.seeds is None else args.seeds, lr if args.lr is None else args.lr
    with _progress_bar() as progress:
        check = coordinate_check(
            **_swept(args), optimizer=lambda net: make(lr, net), seeds=seeds, budget=args.budget,
            tolerance=args.tolerance, progress=progress,
        )  # fmt: skip
    return _written(check, args, "coordinate-check")


@_command(
    "transfer",
    "is the best learning rate the same at every width, or depth? losses, a figure, a verdict",
    "Train networks of growing width at many learning rates and find the best one of each width. Exit "
    "status: 0 if the best rates are within a factor 2, 1 if not, or if one is at the edge of the rates. The rates of "
    "spectral and muon, whose steps do not shrink with the gradient, fall to 0 as a cosine.",
    *SWEPT,
    _option("--rates", "LR:LR", "the least and the largest rate, steps of sqrt(2) between them; as the optimizer"),
    _option("--widths", "N,N,...", "(64,128,256,512; cnn 8,16,32)", type=_whole_numbers),
    _option("--batch-size", "B", "training images", 96),
    _option("--seeds", "S", "networks at each width", 4),
    _option("--steps", "T", "training steps", 30),
    _option("--out", "DIR", "folder for figure and report", "minintk-transfer"),
)
def _transfer(args: argparse.Namespace) -> int:
    from functools import partial

    from minintk import Cosine, learning_rate_transfer
    from minintk.experiments.named import OPTIMIZERS

    args.widths = args.widths or ((8, 16, 32) if args.network == "cnn" else (64, 128, 256, 512))
    make, usual = OPTIMIZERS[args.optimizer]
    fixed = args.optimizer in ("spectral", "muon")  # steps of a fixed size come to rest by a schedule alone
    try:
        low, high = map(float, args.rates.split(":")) if args.rates else (usual, 100 * usual)
    except ValueError:
        raise ValueError(f"rates expects LOW:HIGH, as in 0.01:1, got {args.rates!r}") from None
    rates = [low]
    while 0 < rates[-1] < high:
        rates.append(rates[-1] * 2**0.5)
    with _progress_bar() as progress:
        found = learning_rate_transfer(
            **_swept(args), rates=rates, optimizer=lambda lr: partial(make, Cosine(lr, args.steps) if fixed else lr),
            seeds=args.seeds, progress=progress,
        )  # fmt: skip
    return _written(found, args, "transfer")


# --------------------------------------------------------------------------------------------- reproduce


@_command(
    "reproduce",
    "rerun the papers' experiments: a table of claims, the papers' numbers and ours, and the figures",
    "Run the scripts of examples/, each for one claim or figure of a paper, and print the paper's "
    "number beside ours. Writes NAME.png and NAME.json. Every run is a record in the output folder: the same "
    "command goes on after an interruption, and only draws what is complete. Exit status: 0 if all ran, 1 if not.",
    _option("names", "NAME", "scripts of examples/, without .py (all)", nargs="*"),
    _option("--out", "DIR", "output folder", "minintk-reproduce"),
    _option("--data", "DIR", "folder with MNIST or CIFAR-10; without it, the packaged 8 x 8 digits"),
    _option("--set", about="which images (mnist with --data)", choices=("digits", "mnist", "cifar10")),
    _option(
        "--scale", about="paper: the papers' sizes, on a GPU", default="small", choices=("small", "evening", "paper")
    ),
    _option("--device", about="device (cpu; gpu with --scale paper)", choices=("cpu", "gpu")),
    _option("--part", "I/N", "only part I of N of the runs, I from 0, as in a job array"),
)
def _reproduce(args: argparse.Namespace) -> int:
    from rich.markup import escape

    from minintk.arrays import device_namespace
    from minintk.experiments.papers import chosen, rerun
    from minintk.verify.report import check_folder

    check_folder(args.out)
    if args.data is not None and not Path(args.data).is_dir():
        raise ValueError(f"data expects a folder with MNIST's or CIFAR-10's files, got {args.data!r}")
    paths = chosen(args.names)
    device = args.device or ("gpu" if args.scale == "paper" else "cpu")
    device_namespace(device)  # fails now if there is no such device
    options = {"data": args.data, "scale": args.scale, "device": device, "part": args.part}
    console, failed, done = _console(160), [], 0
    try:
        for name, found in rerun(paths, args.out, images=args.set, **options):
            done += 1
            if found is None:
                print(f"{args.prog}: error: {paths[name].name} failed", file=sys.stderr)
                failed.append(name)
                continue
            rows = [[escape(row[cell]) for cell in ("claim", "paper", "here")] for row in found["table"]]
            _print_table(console, f"{name}, {found['data']}: {args.out}", ("claim", "paper", "here"), rows)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{done} of {len(paths)} scripts are done, in {args.out}") from None
    if failed:
        print(f"{args.prog}: {len(failed)} of {len(paths)} scripts failed: {', '.join(failed)}", file=sys.stderr)
    return FAILED if failed else OK


# ------------------------------------------------------------------------------------------------- grade


@_command(
    "grade",
    "grade a submission: scores and reasons, for the terminal, a CI or Gradescope",
    "Run an assignment's exercises on a submission, in a process of its own that holds no answers, and "
    "say what is wrong with it. Exit status: 0 with full points, 1 with fewer.",
    _option("assignment", "ASSIGNMENT", "a folder with exercises.py, or its name in ./course"),
    _option("submission", "SUBMISSION", "the student's Python file"),
    _option("--seed", "S", "the instructor's secret, or @FILE that holds it", "public"),
    _option("--only", "NAME", "only this exercise; may be given again", action="append"),
    _option("--public", about="leave hidden exercises out", action="store_true"),
    _option("--in-process", about="without a process of its own: no time limit, not for marks", action="store_true"),
    _option("--junit", "FILE", "write JUnit's XML"),
    _option("--gradescope", "FILE", "write Gradescope's results.json"),
    _option("--html", "FILE", "write a page"),
)
def _grade(args: argparse.Namespace) -> int:
    from rich.markup import escape

    from minintk.files.writing import write_atomically
    from minintk.grade import grade, load, reports

    seed = Path(args.seed[1:]).read_text(encoding="utf-8").strip() if args.seed.startswith("@") else args.seed
    found = grade(
        load(args.assignment), args.submission, seed=seed, isolated=not args.in_process, hidden=not args.public,
        only=args.only or (),
    )  # fmt: skip
    for name in ("junit", "gradescope", "html"):
        if path := getattr(args, name):
            write_atomically(path, methodcaller("write", getattr(reports, name)(found).encode()))
    title, console = f"{found.assignment}, {found.submission}", _console(120)
    _print_table(console, title, reports.COLUMNS, [map(escape, row) for row in reports.rows(found)])
    console.print(f"{found.score:g} of {found.points:g} points")
    return OK if found.score == found.points else FAILED


# ------------------------------------------------------------------------------------------------ doctor


@_command(
    "doctor",
    "what this machine has, what will be used of it, and what is broken",
    "Versions, extras, processor, memory, GPU and folders. Exit status: 0 if nothing is broken, 1 if something is.",
)
def _doctor(args: argparse.Namespace) -> int:
    from rich.markup import escape

    from minintk.doctor import examine

    found = list(examine())
    rows = [(what, _coloured("fail") if broken else "", escape(text)) for what, text, broken in found]
    _print_table(_console(200), "this machine, for minintk", ("what", "", "found"), rows)
    return FAILED if any(broken for *_, broken in found) else OK


# ---------------------------------------------------------------------------------------------- terminal


def _console(width: int) -> Any:
    """stdout with colours, as wide as the terminal, or of this width where there is none."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else width)


def _print_table(console: Any, title: str, columns: Sequence[str], rows: Iterable[Iterable[str]]) -> None:
    """A table, and an empty line below it; the cells may hold markup."""
    from rich.table import Table

    table = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    console.print(table, "")


def _coloured(verdict: str, said: str = "") -> str:
    colour = {"pass": "green", "fail": "bold red", "undecided": "bold yellow"}[verdict]
    return f"[{colour}]{said or verdict}[/]"


@contextmanager
def _progress_bar() -> Iterator[Callable[[float, str], None]]:
    """A progress bar on a terminal, silence elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    left = (TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.description}"))
    columns = (BarColumn(), TextColumn("{task.percentage:3.0f} %"), TimeElapsedColumn(), *left)
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda fraction, doing: bar.update(task, completed=fraction, description=doing)
