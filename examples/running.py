"""Provide settings, recorded runs and a command line for the scripts that rerun the experiments of papers."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, signature
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from resuming import PLACE, same_work

import minintk as mn
from minintk.arrays import device_namespace
from minintk.cores import cores
from minintk.files.locks import Claim
from minintk.files.writing import write_bytes
from minintk.lab.experiments.processes import processes

Found = dict[str, Any]
Main = Callable[..., Found]

SIZE = {
    "N": ("n_train", "n", "numbers"),
    "width": ("widths", "width", "channels"),
    "steps": ("steps", "epochs"),
    "seeds": ("seeds", "members", "repeats"),
}
"""{kind of size that we compare with the paper: the arguments of `main` that set it}."""


@dataclass(frozen=True)
class Setting:
    """Settings from the command line. With the defaults, a script runs in this process and keeps no files.

    name : the script's name.
    out : the folder for results, or None.
    data : "digits" (shipped with the package), "mnist" or "cifar10".
    part : (i, n) to compute only part i, counted from 0, of the n parts of the runs, as in a job array.
    workers : the number of processes; 1 means only this process.
    first_seed : the number added to all values of "seed" and "repeat", so that other networks are drawn.
    sizes : the arguments of main in this run.
    papers : the arguments of main at the paper's size.
    """

    name: str = ""
    out: Path | None = None
    data: str = "digits"
    scale: str = "small"
    part: tuple[int, int] | None = None
    workers: int = 1
    progress: bool = False
    first_seed: int = 0
    sizes: Mapping[str, Any] = field(default_factory=dict)
    papers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return the stem of the file names: NAME for digits, otherwise NAME-mnist or NAME-cifar10."""
        return self.name if self.data == "digits" else f"{self.name}-{self.data}"

    @property
    def factors(self) -> dict[str, float]:
        """Return {kind in `SIZE`: ratio of the paper's size to ours} for the kinds for which both sizes are known."""
        found: dict[str, float] = {}
        for name, keys in SIZE.items():
            for key in keys:
                ours, paper = self.sizes.get(key), self.papers.get(key, self.sizes.get(key))
                if ours and paper:
                    found[name] = max(found.get(name, 0.0), float(np.max(paper) / np.max(ours)))
        return found

    def sweep(
        self,
        work: Callable[..., Any],
        grid: Mapping[str, Sequence[Any]],
        *,
        together: str | None = None,
        batch: int | None = None,
        **fixed: Any,
    ) -> mn.Table:
        """Run `mn.sweep` of work(**fixed, **point) over the grid, and record the runs in this script's store.

        Raise SystemExit if any runs are missing, for example those of the other parts.
        """
        moved = {name: [v + self.first_seed for v in grid[name]] for name in ("seed", "repeat") if name in grid}
        axes = {name: [value] for name, value in fixed.items()} | dict(grid) | moved
        if self.workers > 1:  # one BLAS thread per worker
            os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with TemporaryDirectory() as nowhere, processes(self.workers) as executor:
            store = (self.out / f"{self.name}.runs" if self.out else Path(nowhere)) / work.__name__
            os.environ[PLACE] = str(store.resolve() / "unfinished")
            same_work(work, store.with_suffix(".source"))
            table = mn.sweep(
                work, axes, store=store, together=together, batch=batch, part=self.part, executor=executor,
                progress=self.progress,
            )  # fmt: skip
            del os.environ[PLACE]
        if missing := [point for point, result in zip(table.points, table.results) if not result]:
            names = [name for name in grid if len({str(point[name]) for point in table.points}) > 1]
            ends = (", ".join(f"{name} {point[name]}" for name in names) for point in (missing[0], missing[-1]))
            left = f"{len(missing)} of {len(table.results)} runs of {work.__name__} are missing, {' to '.join(ends)}"
            raise SystemExit(f"{self.name}: {left}: run the other parts, or without --part, which makes them all")
        return mn.Table({name: table.grid[name] for name in grid}, table.results)


def _die_with_stdin() -> None:
    """Make this process end as soon as `minintk reproduce`, the process at the other end of stdin, ends."""

    def wait() -> None:
        while os.read(0, 1):  # reading sys.stdin would hold its lock when this process exits by itself
            pass
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def flags(name: str, asked: Sequence[Parameter]) -> list[str]:
    """Return --name and, if it differs, the common flag for this size: --widths, --n-train, --steps or --seeds.

    >>> flags("members", []), flags("n_train", [])
    (['--members', '--seeds'], ['--n-train'])
    """
    taken = {parameter.name for parameter in asked}
    others = [keys[0] for keys in SIZE.values() if name in keys[1:] and not taken & {*keys[: keys.index(name)]}]
    return [f"--{flag.replace('_', '-')}" for flag in (name, *others)]


def kind_of(name: str, hint: Any) -> dict[str, Any]:
    """Return the keyword arguments of `add_argument` for a parameter of `main` of type `hint`: int, float or tuple."""
    if type(None) in get_args(hint):
        hint = get_args(hint)[0]
    read = next((kind for kind in (int, float) if kind in (hint, *get_args(hint))), str)
    return {"type": read, "metavar": name[:1].upper()} | ({"nargs": "+"} if get_origin(hint) is tuple else {})


def command_line(main: Main, sizes: Mapping[str, Mapping[str, Any]], doc: str | None, name: str) -> None:
    """Run main(setting, **sizes[scale]) with the settings of the command line, and print its table.

    Raise TypeError if a parameter of `main` has no type annotation.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="examples-out", metavar="DIR", help="folder for figure, numbers and runs")
    parser.add_argument("--data", metavar="DIR", help="folder with MNIST or CIFAR-10; without it, the digits inside")
    parser.add_argument("--set", choices=("digits", "mnist", "cifar10"), help="which images (mnist with --data)")
    parser.add_argument("--scale", default="small", choices=tuple(sizes), help="how large; paper: the paper's own")
    parser.add_argument("--device", choices=("cpu", "gpu"), help="where it computes (cpu; gpu at the paper's scale)")
    parser.add_argument("--part", metavar="I/N", help="only part I of N of the runs, I from 0, as in a job array")
    parser.add_argument("--first-seed", type=int, default=0, metavar="S", help="draw other networks, from seed S (0)")
    own = parser.add_argument_group("sizes, instead of those of --scale")
    asked, hints = list(signature(main).parameters.values())[1:], get_type_hints(main)
    for p in asked:
        if p.name not in hints:
            raise TypeError(f"main of {name}.py: expected a type for every size, such as {p.name}: int, got none")
        own.add_argument(*flags(p.name, asked), dest=p.name, **kind_of(p.name, hints[p.name]))
    args = parser.parse_args()
    if os.environ.pop("MININTK_ENDS_WITH_STDIN", ""):
        _die_with_stdin()
    if args.data:
        os.environ["MININTK_DATA"] = str(Path(args.data).expanduser().resolve())
    device = args.device or ("gpu" if args.scale == "paper" else "cpu")
    device_namespace(device)  # raises if there is no such device
    os.environ["MININTK_DEVICE"] = device
    i, n = map(int, (args.part or "0/1").split("/"))
    given = {p.name: value for p in asked if (value := getattr(args, p.name)) is not None}
    defaults = {p.name: p.default for p in asked if p.default is not Parameter.empty}

    def whole(scale: str, given: Mapping[str, Any]) -> dict[str, Any]:
        return defaults | dict(sizes.get(scale, {})) | dict(given)

    (out := Path(args.out)).mkdir(parents=True, exist_ok=True)  # raises now, not after the runs
    s = Setting(
        name, out, args.set or ("mnist" if args.data else "digits"), args.scale, (i, n),
        cores() if device == "cpu" else 1, True, args.first_seed, whole(args.scale, given), whole("paper", {}),
    )  # fmt: skip
    start, busy = perf_counter(), sum(os.times()[:4])
    try:
        found = main(s, **{**sizes[args.scale], **given})
    except KeyboardInterrupt:
        raise SystemExit(f"{name}: interrupted; the same command resumes from the finished runs in {out}") from None
    finally:  # the time has its own file, because the numbers do not depend on it
        path = out / f"{s.key}.time.json"
        with Claim(path.with_suffix(".lock"), wait=True):  # the processes of other parts add their times
            spent = json.loads(path.read_text()) if path.exists() else {"seconds": 0.0, "core seconds": 0.0}
            spent["seconds"] += perf_counter() - start
            spent["core seconds"] += sum(os.times()[:4]) - busy
            write_bytes(path, json.dumps(spent).encode())
    for row in found["table"]:
        print(f"- {row['claim']}\n      paper {row['paper']}\n      here  {row['here']}")
        if row["rule"]:
            print(f"      {row['verdict']}: {row['rule']}")
    print("{seconds:.0f} s, {core seconds:.0f} s of one core, earlier calls included".format(**spent), f"in {out}")
