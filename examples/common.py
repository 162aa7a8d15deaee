"""Shared parts of the scripts that rerun a paper: command line, images, intervals, files.

A script has `main(out, data, scale, ...)`, which returns numbers and, under "table", rows (claim, the paper's number,
ours).  If `out`, a folder, is given, it writes its figure NAME.png and all its numbers NAME.json there.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import minintk as mn
from minintk.arrays import device_namespace, to_library
from minintk.fast.threads import cores

Found = dict[str, Any]


def command_line(main: Callable[..., Found], doc: str | None, name: str) -> None:
    """--out, --data, --scale, --device; prints the table."""
    global _device, _workers
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=".", metavar="DIR", help=f"folder for {name}.png and {name}.json")
    parser.add_argument("--data", metavar="DIR", help="folder with MNIST or CIFAR-10; without it, the digits inside")
    parser.add_argument("--set", default="mnist", choices=("mnist", "cifar10"), help="which of the two")
    parser.add_argument("--scale", default="laptop", choices=("laptop", "paper"), help="paper: its sizes, on a GPU")
    parser.add_argument("--device", choices=("cpu", "gpu"), help="where it computes: cpu, or gpu at the paper's scale")
    args = parser.parse_args()
    _device = args.device
    _workers = 1 if (args.device or ("gpu" if args.scale == "paper" else "cpu")) == "gpu" else cores()
    Path(args.out).mkdir(parents=True, exist_ok=True)  # or fail now rather than at the end
    start, busy = perf_counter(), sum(os.times()[:4])
    found = main(out=args.out, data=args.data and (args.set, args.data), scale=args.scale)
    for claim, paper, ours in found["table"]:
        print(f"- {claim}\n      paper {paper}\n      here  {ours}")
    found |= {"seconds": perf_counter() - start, "core seconds": sum(os.times()[:4]) - busy}
    (Path(args.out) / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    print("{seconds:.0f} s, {core seconds:.0f} s of one core".format(**found))


Source = tuple[str, str] | None
"""("mnist" or "cifar10", its folder), or None for the 8 x 8 digits inside the package."""


def images(data: Source, n_train: int, n_test: int, seed: int = 0) -> tuple[mn.datasets.Dataset, mn.datasets.Dataset]:
    """Random training and test images in float32, x : (N, H, W, C) in [0, 1]; fewer if there are not enough."""
    rng = np.random.default_rng(seed)
    if data is None:
        digits = mn.datasets.digits(dtype=np.float32).images()
        n_train = min(n_train, len(digits) - 297)
        return digits.split(n_train, min(n_test, len(digits) - n_train), rng)
    read = {"mnist": mn.datasets.mnist, "cifar10": mn.datasets.cifar10}[data[0]]
    train, test = (read(data[1], split, dtype=np.float32).images() for split in ("train", "test"))
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


_device: str | None = None
"""What --device said to the script that runs."""

_workers = 1
"""Processes that the script may use: one for each core, when it runs from the command line on the CPU."""


def placed(scale: str, *arrays: mn.Array) -> tuple[mn.Array, ...]:
    """The arrays on the device of --device; by default on the GPU at the paper's scale, else on the CPU."""
    xp = device_namespace(_device or ("gpu" if scale == "paper" else "cpu"))
    return tuple(to_library(a, xp) for a in arrays)


def right(model: mn.Model, theta: mn.Array, x: mn.Array, y: mn.Array, batch: int = 500) -> np.ndarray[Any, Any]:
    """Which test examples each member classifies correctly, ([E], M) of zeros and ones."""
    parts = []
    for i in range(0, len(x), batch):
        f = mn.arrays.to_host(model(theta, x[i : i + batch]))
        y_part = mn.arrays.to_host(y[i : i + batch])
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


def interval(values: Any, of: float = 0.95) -> tuple[float, float]:
    """Mean over independent seeds, and half the width of its Student t interval (NaN for a single seed)."""
    v = np.asarray(values, dtype=float).ravel()
    if len(v) < 2:
        return float(v.mean()), float("nan")
    from scipy.special import stdtrit

    return float(v.mean()), float(stdtrit(len(v) - 1, (1 + of) / 2) * v.std(ddof=1) / sqrt(len(v)))


def tested(score: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Mean of a score (E, M) over seeds and test examples, and the half-width of a 95 % interval that covers both.

    Var = var over examples of their mean over seeds / M + var over seeds of their mean over examples / E; with a
    single seed only the examples count.
    """
    E, M = score.shape
    seeds = score.mean(1).var(ddof=1) / E if E > 1 else 0.0
    return float(score.mean()), 1.96 * sqrt(score.mean(0).var(ddof=1) / M + seeds)


def percent(value: tuple[float, float], digits: int = 2) -> str:
    """A fraction and its half-width, in per cent."""
    return f"{100 * value[0]:.{digits}f} ± {100 * value[1]:.{digits}f}"


def finish(out: str | None, name: str, found: Found, draw: Callable[[Any], None]) -> Found:
    """Write NAME.json and NAME.png into the folder `out`, if given; `draw` takes matplotlib's pyplot."""
    if out:
        import matplotlib.pyplot as plt

        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
        with plt.style.context("minintk.verify.look"):
            draw(plt)
            plt.savefig(folder / f"{name}.png", dpi=120)
            plt.close()
    return found
