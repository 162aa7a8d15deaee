"""Define small versions of three long runs (training, a sweep, a stored kernel) that record their computations."""

from __future__ import annotations

import os
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np

import analytic as an
import minintk as mn
from analytic.images import engine
from analytic.large import streaming
from minintk.arrays import Array

X = np.random.default_rng(0).standard_normal((10, 4, 3, 2))
POOLED = mn.Sequential(mn.Conv2d(6, 3, w_std=1.4, b_std=0.1), mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1))
SHARED = {"sweep": ["results.json"]} if find_spec("minintk.lab") else {}  # the laboratory is optional
FILES = SHARED | {"store": ["nngp.npy", "ntk.npy"]}
UNITS = {"fit": 12} | dict.fromkeys(SHARED, 12) | {"store": 15}
HOME, STARTERS = "MININTK_TEST_FOLDER", "MININTK_TEST_STARTERS"
UNIT = 0.03
"""The minimum duration of a unit (a loss evaluation, a call of `work` or a block), in seconds."""


def logs(folder: Path) -> list[Path]:
    """Return the log files of the processes that have started a unit."""
    return list(folder.parent.glob(f"{folder.name}-*.log"))


def note() -> None:
    """Record that this process is computing a unit, and wait up to a minute for every process to record one."""
    folder = Path(os.environ[HOME])
    with open(folder.parent / f"{folder.name}-{os.getpid()}.log", "ab") as log:
        log.write(b".")
    for _ in range(6000):
        if len(logs(folder)) >= int(os.environ[STARTERS]):
            return
        sleep(0.01)


def computed(folder: Path) -> int:
    """Return the total number of units that the processes have started."""
    return sum(path.stat().st_size for path in logs(folder))


class Noted(mn.MeanSquared):
    """A loss that records each evaluation."""

    def __call__(self, f: Array, y: Array) -> Array:
        note()
        sleep(UNIT)
        return super().__call__(f, y)


def fit(folder: Path) -> None:
    """Train for twelve steps with mini-batches and momentum, and save a checkpoint at each step."""
    rng = np.random.default_rng(1)
    net = mn.Network(mn.Sequential(mn.Flatten(), *mn.zoo.mlp(1, 16, 1)), (4, 3, 2))
    how: dict[str, Any] = {"loss": Noted(), "optimizer": mn.SGD(0.1, momentum=0.9), "batch_size": 4, "rng": rng}
    mn.fit(net, net.init(rng), X, np.sign(X[:, 0, 0, :1]), steps=12, every=1, checkpoint=folder, **how)


def work(a: int, seed: tuple[int, ...]) -> list[dict[str, float]]:
    """Compute a unit of the sweep: one value per seed, for the given `a`."""
    note()
    sleep(UNIT)
    return [{"value": a / 3 + s + sum(seed) / 7} for s in seed]


def sweep(folder: Path) -> None:
    """Run a sweep of twelve calls of `work`, each for two seeds."""
    mn.sweep(work, {"a": range(4), "seed": range(6)}, together="seed", batch=2, store=folder)


def noted_block(evaluate: Any, *arguments: Any) -> Any:
    """Record a block, wait UNIT seconds, and compute the block."""
    note()
    sleep(UNIT)
    return evaluate(*arguments)


def kernel(folder: Path) -> None:
    """Compute a kernel into a store in fifteen blocks, each of two images against two images."""
    vars(streaming).update(PIXEL_PAIRS_PER_BLOCK=4 * (4 * 3) ** 2, FEWEST=5, SHORTEST=0.0)
    engine.SHORTEST_TILE = 0.0
    right, k = streaming.fill, an.kernel(POOLED)

    def noted(of: streaming.KernelStore, whole: Any, evaluate: Any, *how: Any) -> Any:
        return right(of, whole, partial(noted_block, evaluate), *how)

    streaming.fill = noted  # type: ignore[assignment]
    try:
        k.both(X, store=folder)
    finally:
        streaming.fill = right


def run(kind: str, folder: Path, starters: int = 1) -> None:
    """Start or resume the run of this kind as one of `starters` processes, and return when the run is complete."""
    os.environ.update({HOME: str(folder), STARTERS: str(starters)})
    {"fit": fit, "sweep": sweep, "store": kernel}[kind](folder)


def result(kind: str, folder: Path) -> dict[str, Any]:
    """Return the parts of the result that must be bitwise identical with and without interruptions."""
    if kind != "fit":
        return {name: (folder / name).read_bytes() for name in FILES[kind]}
    with np.load(folder / "checkpoint.npz") as found:
        arrays = {name: found[name].tobytes() for name in found.files if name != "about"}
    rows = mn.History.load(folder / "history.json").rows
    return {**arrays, "history": [{name: v for name, v in row.items() if name != "seconds"} for row in rows]}
