"""One way to run the scripts that rerun a paper: settings, recorded runs, intervals, rows of the table, files.

    SIZES = {"small": {"widths": (32, 64), "seeds": 3}, "evening": {...}, "paper": {...}}

    def work(data: str, width: int, seed: tuple[int, ...]) -> list[dict[str, float]]:
        train, test = images(data, 1000, 1000)                    # "digits", "mnist" or "cifar10"
        ...
        return [{"error": error} for error in errors]             # one result a seed: they train together

    def main(s: Setting, widths: tuple[int, ...], seeds: int) -> Found:
        runs = s.sweep(work, {"width": widths, "seed": range(seeds)}, together="seed", data=s.data)
        ours = [interval(errors) for errors in runs["error"]]     # runs["error"] : (widths, seeds)
        rows = [Row("the error falls", paper="as 1/n", here=..., of="seeds", size="1,000 images", seeds=seeds)]
        return finish(s, {"error": ours}, rows, draw)

    if __name__ == "__main__":
        command_line(main, SIZES, __doc__, "name_of_the_script")

Every run of `work` is a record in the folder NAME.runs below --out: a script killed at any moment goes on where it was,
and a second call only draws.  On the CPU runs are spread over the cores, one process with one BLAS thread on each.
`work` depends on its arguments alone, all of them numbers or text, and `s.sweep` takes constant ones as keywords.  A
run that diverges is a record too, NaN in the table of runs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import hypot, nan, sqrt
from multiprocessing import get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

import minintk as mn
from minintk.arrays import device_namespace, to_host, to_library
from minintk.fast.threads import cores
from minintk.files.writing import write_bytes

Found = dict[str, Any]
Main = Callable[..., Found]

# ------------------------------------------------------------------------------------------------ running


@dataclass(frozen=True)
class Setting:
    """What the command line says: the defaults run a script inside a test, without files that stay.

    name : of the script.  out : folder for results, or None.  data : "digits" (inside the package), "mnist" or
    "cifar10".  part : (i, n), to make only that part of the runs, for job arrays.  workers : processes; 1 is this one.
    """

    name: str = ""
    out: Path | None = None
    data: str = "digits"
    scale: str = "small"
    part: tuple[int, int] | None = None
    workers: int = 1
    progress: bool = False

    @property
    def key(self) -> str:
        """The name of the files: NAME on digits, NAME-mnist, NAME-cifar10."""
        return self.name if self.data == "digits" else f"{self.name}-{self.data}"

    def sweep(
        self,
        work: Callable[..., Any],
        grid: Mapping[str, Sequence[Any]],
        *,
        together: str | None = None,
        batch: int | None = None,
        **fixed: Any,
    ) -> mn.Table:
        """`mn.sweep` of work(**fixed, **point) over the grid, in this script's store.

        SystemExit where another part of the runs is missing.
        """
        axes = {name: [value] for name, value in fixed.items()} | dict(grid)
        with TemporaryDirectory() as nowhere, _pool(self.workers) as executor:
            store = (self.out / f"{self.name}.runs" if self.out else Path(nowhere)) / work.__name__
            table = mn.sweep(
                work, axes, store=store, together=together, batch=batch, part=self.part, executor=executor,
                progress=self.progress,
            )  # fmt: skip
        if missing := sum(not result for result in table.results):
            raise SystemExit(f"{self.name}: {missing} of {len(table.results)} runs are left to other parts")
        return mn.Table({name: table.grid[name] for name in grid}, table.results)


@contextmanager
def _pool(workers: int) -> Iterator[Executor | None]:
    """Processes with one BLAS thread each, which end with this one however it ends; None for a single worker."""
    if workers == 1:
        yield None
        return
    os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_die_with_parent) as pool:
        yield pool


def _die_with_parent() -> None:
    """End this process when its parent has ended, killed or not."""

    def wait() -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def _die_with_stdin() -> None:
    """End this process when whoever holds the other end of stdin has ended: `minintk reproduce`."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def command_line(main: Main, sizes: Mapping[str, Mapping[str, Any]], doc: str | None, name: str) -> None:
    """Run main(setting, **sizes[scale]) as --out, --data, --set, --scale, --device, --part say; print its table."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=".", metavar="DIR", help="folder for runs, figure and numbers (.)")
    parser.add_argument("--data", metavar="DIR", help="folder with MNIST or CIFAR-10; without it, the digits inside")
    parser.add_argument("--set", choices=("digits", "mnist", "cifar10"), help="which images (mnist with --data)")
    parser.add_argument("--scale", default="small", choices=tuple(sizes), help="how large; paper: the paper's own")
    parser.add_argument("--device", choices=("cpu", "gpu"), help="where it computes (cpu; gpu at the paper's scale)")
    parser.add_argument("--part", metavar="I/N", help="only part I of N of the runs, I from 0, as in a job array")
    args = parser.parse_args()
    if os.environ.pop("MININTK_ENDS_WITH_STDIN", ""):
        _die_with_stdin()
    if args.data:
        os.environ["MININTK_DATA"] = str(Path(args.data).expanduser().resolve())
    device = args.device or ("gpu" if args.scale == "paper" else "cpu")
    device_namespace(device)  # fails now if there is none
    os.environ["MININTK_DEVICE"] = device
    part = None
    if args.part:
        i, n = args.part.split("/")
        part = int(i), int(n)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)  # or fail now rather than at the end
    s = Setting(
        name, out, args.set or ("mnist" if args.data else "digits"), args.scale, part,
        cores() if device == "cpu" else 1, progress=True,
    )  # fmt: skip
    start, busy = perf_counter(), sum(os.times()[:4])
    try:
        found = main(s, **sizes[args.scale])
    finally:  # beside the numbers, which do not depend on it
        path = out / f"{s.key}.time.json"
        spent = json.loads(path.read_text()) if path.exists() else {"seconds": 0.0, "core seconds": 0.0}
        spent["seconds"] += perf_counter() - start
        spent["core seconds"] += sum(os.times()[:4]) - busy
        write_bytes(path, json.dumps(spent).encode())
    for row in found["table"]:
        print(f"- {row['claim']}\n      paper {row['paper']}\n      here  {row['here']}")
    print("{seconds:.0f} s, {core seconds:.0f} s of one core, earlier calls included".format(**spent))


# ------------------------------------------------------------------------------------------- data, device


@lru_cache(maxsize=4)
def images(data: str, n_train: int, n_test: int, seed: int = 0) -> tuple[mn.datasets.Dataset, mn.datasets.Dataset]:
    """Random training and test images in float32, x : (N, H, W, C) in [0, 1]; fewer if there are not enough.

    data : "digits", "mnist" or "cifar10".  The same object at every call: do not write into its arrays.
    """
    rng = np.random.default_rng(seed)
    if data == "digits":
        digits = mn.datasets.digits(dtype=np.float32).images()
        n_train = min(n_train, len(digits) - 297)
        return digits.split(n_train, min(n_test, len(digits) - n_train), rng)
    read = {"mnist": mn.datasets.mnist, "cifar10": mn.datasets.cifar10}[data]
    train, test = (read(split=split, dtype=np.float32).images() for split in ("train", "test"))
    return train.subset(min(n_train, len(train)), rng), test.subset(min(n_test, len(test)), rng)


def lenet(shape: tuple[int, ...], width: int, outputs: int = 10) -> mn.Sequential:
    """LeNet-5 times `width`; for 8 x 8 images a smaller one, with 3 x 3 windows and as many channels and features."""
    if shape[0] != 8:
        return mn.zoo.lenet5(width, outputs, padding=2 if shape[0] == 28 else 0)
    layers: list[mn.spec.Layer] = []
    for channels in (6 * width, 16 * width):
        layers += [mn.Conv2d(channels, 3, b_std=1.0), mn.ReLU(), mn.MaxPool(2)]
    layers += [mn.Flatten(), mn.Dense(120 * width, b_std=1.0), mn.ReLU(), mn.Dense(84 * width, b_std=1.0), mn.ReLU()]
    return mn.Sequential(*layers, mn.Dense(outputs, b_std=1.0))


def placed(*arrays: mn.Array) -> tuple[mn.Array, ...]:
    """The arrays on the device of --device."""
    xp = device_namespace(os.environ.get("MININTK_DEVICE", "cpu"))
    return tuple(to_library(a, xp) for a in arrays)


def right(model: mn.Model, theta: mn.Array, x: mn.Array, y: mn.Array, batch: int = 500) -> np.ndarray[Any, Any]:
    """Which test examples each member classifies correctly, ([E], M) of zeros and ones."""
    parts = []
    for i in range(0, len(x), batch):
        f, y_part = to_host(model(theta, x[i : i + batch])), to_host(y[i : i + batch])
        parts.append(f.argmax(-1) == y_part.argmax(-1) if f.shape[-1] > 1 else (f * y_part)[..., 0] > 0)
    return np.concatenate(parts, axis=-1).astype(float)


def stable_rate(model: mn.Model, theta: mn.Array, x: mn.Array, momentum: float = 0.9) -> float:
    """2 (1 + m) / (2 lambda_max(J J') / N), the stability bound for `mn.sum_of_squares`, to 10 % by power iteration."""
    f, J = model.linearize(theta, x)
    u, size = mn.arrays.array_namespace(f).ones_like(f), 0.0
    for _ in range(20):
        v = J.jvp(J.vjp(u))
        size = float((v * v).sum() / (u * u).sum()) ** 0.5
        u = v / size
    return (1 + momentum) * len(x) / size


# ---------------------------------------------------------------------------------------------- intervals


LEVEL = 0.95


class Measured(NamedTuple):
    """A mean and half of its 95 % interval, NaN if there is none.  of : what varies, "seeds", "images" or "both"."""

    mean: float
    half: float = nan
    of: str = "seeds"


def interval(values: Any) -> Measured:
    """Mean over independent seeds, and half the width of its Student t interval (NaN for a single seed).

    >>> interval([1.0, 3.0])                                      # two seeds: 12.7 standard errors, not 1.96
    Measured(mean=2.0, half=12.706..., of='seeds')
    """
    v = np.asarray(values, dtype=float).ravel()
    if len(v) < 2:
        return Measured(float(v.mean()))
    t = float(stdtrit(len(v) - 1, (1 + LEVEL) / 2))
    return Measured(float(v.mean()), t * float(v.std(ddof=1)) / sqrt(len(v)))


def tested(score: Any) -> Measured:
    """Mean of a score (E, M) over seeds and test examples, with an interval that covers both ("both").

    Half its width is the root of the sum of squares of two Student t intervals: over seeds, of their means over
    examples, and over examples, of their means over seeds.  With a single seed only the examples count ("images"): the
    interval then says nothing about another network.
    """
    score = np.asarray(score, dtype=float)
    over_seeds, over_images = interval(score.mean(1)), interval(score.mean(0))
    if len(score) == 1:
        return Measured(over_images.mean, over_images.half, "images")
    return Measured(over_images.mean, hypot(over_seeds.half, over_images.half), "both")


def percent(value: Measured | tuple[float, float], digits: int = 2) -> str:
    """A fraction and its half-width, in per cent."""
    return plus((100 * value[0], 100 * value[1]), digits)


def plus(value: Measured | tuple[float, float], digits: int = 2) -> str:
    """A number and its half-width, if it has one."""
    return f"{value[0]:.{digits}f}" + (f" ± {value[1]:.{digits}f}" if value[1] == value[1] else "")


# ----------------------------------------------------------------------------------------- table and files


@dataclass(frozen=True)
class Row:
    """A line of the table of claims.

    of : what the interval behind ± covers, "seeds", "images", "both", or "" without one.  size : data and networks in
    words.  agrees : whether ours is what the paper says, None where it says nothing.  why : if not, the cause that was
    tested, or "open".
    """

    claim: str
    paper: str
    here: str
    of: str = ""
    size: str = ""
    seeds: int | None = None
    agrees: bool | None = None
    why: str = ""


def finish(s: Setting, found: Found, rows: Sequence[Row], draw: Callable[[Any], None]) -> Found:
    """`found` with its table; writes KEY.json and KEY.png into --out.  draw : called with matplotlib's pyplot."""
    found = found | {"data": s.data, "scale": s.scale, "table": [asdict(row) for row in rows]}
    if s.out:
        import matplotlib.pyplot as plt

        write_bytes(s.out / f"{s.key}.json", f"{json.dumps(found, indent=1, ensure_ascii=False)}\n".encode())
        with plt.style.context("minintk.verify.look"):
            draw(plt)
            plt.savefig(s.out / f"{s.key}.png", dpi=120)
            plt.close()
    return found
