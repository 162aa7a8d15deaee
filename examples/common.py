"""Provide settings, recorded runs, intervals and table rows for the scripts that rerun papers.

    SIZES = {"small": {"widths": (32, 64), "seeds": 3}, "evening": {...}, "paper": {...}}

    def work(data: str, width: int, seed: tuple[int, ...]) -> list[dict[str, float]]:
        train, test = images(data, 1000, 1000)                    # "digits", "mnist" or "cifar10"
        ...
        return [{"error": error} for error in errors]             # one result per seed

    def main(s: Setting, widths: tuple[int, ...], seeds: int) -> Found:
        runs = s.sweep(work, {"width": widths, "seed": range(seeds)}, together="seed", data=s.data)
        ours = [interval(errors) for errors in runs["error"]]     # runs["error"] : (widths, seeds)
        rows = [Row("the error falls", paper="as 1/n", here=..., of="seeds", size="1,000 images", seeds=seeds)]
        return finish(s, {"error": ours}, rows, draw)

    if __name__ == "__main__":
        command_line(main, SIZES, __doc__, "name_of_the_script")

Every run of `work` is recorded in the folder NAME.runs inside --out.  After an interruption, the next call resumes from
these records.  If all runs are recorded, the call only evaluates and plots them.  On the CPU, runs are spread over the
cores, with one process and one BLAS thread per core.  The result of `work` must depend only on its arguments, which are
numbers, strings or tuples of these.  Pass constant arguments to `s.sweep` as keywords.  A run that diverges is also
recorded, and its entries in the table of runs are NaN.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np
from claim_rows import Row, finish
from intervals import LEVEL, Measured, interval, percent, plus, tested
from running import Found, Setting, command_line

import minintk as mn
from minintk.arrays import device_namespace, to_host, to_library

__all__ = [
    "LEVEL", "Found", "Measured", "Row", "Setting", "command_line", "finish", "images", "interval", "lenet", "percent",
    "placed", "plus", "right", "stable_rate", "tested",
]  # fmt: skip


@lru_cache(maxsize=4)
def images(data: str, n_train: int, n_test: int, seed: int = 0) -> tuple[mn.datasets.Dataset, mn.datasets.Dataset]:
    """Return random training and test images in float32, with x (N, H, W, C) in [0, 1].

    data : "digits", "mnist" or "cifar10". If a set has fewer images than requested, all of them are returned. At most
    1,500 of the digits are used for training. Equal calls can return the same objects: do not change them.
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
    """Build LeNet-5 with the numbers of channels and hidden features multiplied by `width`.

    For 8 x 8 images, the convolutions are 3 x 3.
    """
    if shape[0] != 8:
        return mn.zoo.lenet5(width, outputs, padding=2 if shape[0] == 28 else 0)
    layers: list[mn.spec.Layer] = []
    for channels in (6 * width, 16 * width):
        layers += [mn.Conv2d(channels, 3, b_std=1.0), mn.ReLU(), mn.MaxPool(2)]
    layers += [mn.Flatten(), mn.Dense(120 * width, b_std=1.0), mn.ReLU(), mn.Dense(84 * width, b_std=1.0), mn.ReLU()]
    return mn.Sequential(*layers, mn.Dense(outputs, b_std=1.0))


def placed(*arrays: mn.Array) -> tuple[mn.Array, ...]:
    """Copy arrays to the device selected by --device."""
    xp = device_namespace(os.environ.get("MININTK_DEVICE", "cpu"))
    return tuple(to_library(a, xp) for a in arrays)


def right(model: mn.Model, theta: mn.Array, x: mn.Array, y: mn.Array, batch: int = 500) -> np.ndarray[Any, Any]:
    """Return an array ([E], M) that is 1 where a network of the ensemble classifies an example correctly, else 0."""
    parts = []
    for i in range(0, len(x), batch):
        f, y_part = to_host(model(theta, x[i : i + batch])), to_host(y[i : i + batch])
        parts.append(f.argmax(-1) == y_part.argmax(-1) if f.shape[-1] > 1 else (f * y_part)[..., 0] > 0)
    return np.concatenate(parts, axis=-1).astype(float)


def stable_rate(model: mn.Model, theta: mn.Array, x: mn.Array, momentum: float = 0.9) -> float:
    """Return 2 (1 + m) / (2 lambda_max(J J') / N), the linearisation's largest stable rate for `mn.sum_of_squares`.

    m is the momentum and N is the number of examples. Power iteration gives lambda_max to within about 10 %.
    """
    f, J = model.linearize(theta, x)
    u, size = mn.arrays.array_namespace(f).ones_like(f), 0.0
    for _ in range(20):
        v = J.jvp(J.vjp(u))
        size = float((v * v).sum() / (u * u).sum()) ** 0.5
        u = v / size
    return (1 + momentum) * len(x) / size
