"""Start a sweep that kills itself with SIGKILL at a given point.

python interrupted_sweep.py FOLDER SIZE train 7        at the 7th call of `work`, half way through its training
python interrupted_sweep.py FOLDER SIZE write 12       in the middle of writing the 12th record
python interrupted_sweep.py FOLDER SIZE                not at all

SIZE is "small" for 12 runs, or "large" for 500 runs over (alpha, h, seed).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import minintk as mn
from minintk.diagnostics import t1
from minintk.files import writing
from tests.kit.interrupted import die

GRIDS: dict[str, tuple[dict[str, Any], int]] = {
    "small": ({"alpha": [0.1, 10.0], "h": [8, 12], "seed": range(3)}, 2),
    "large": ({"alpha": np.geomspace(0.1, 100, 10), "h": [8, 12, 16, 24, 32], "seed": range(10)}, 5),
}

happens: Callable[[], None] = lambda: None  # noqa: E731
calls, at = 0, -1


def work(alpha: float, h: int, seed: tuple[int, ...]) -> list[dict[str, Any]]:
    """Train an alpha-scaled network for forty steps on digits.

    Return for each member the final loss, the time t1 at which the loss had halved, and two outputs.
    """
    global calls
    calls += 1
    x, y = mn.datasets.digits(dtype=np.float32)[:20].parity()
    net = mn.Network(mn.Sequential(mn.Dense(h), mn.Softplus(5.0, 1.404383), mn.Dense(1)), x.shape[1:])
    theta = np.stack([net.init(np.random.default_rng(s), dtype=np.float32) for s in seed])
    lazy = mn.Centred(net, theta, alpha)
    t, losses = [], []
    for snap in mn.train(lazy, theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=0.2 / alpha**2, momentum=0.5), steps=40):
        if calls == at and snap.step == 20:
            happens()
        t.append(snap.t)
        losses.append(snap.loss)
    halves = t1(np.array(t), np.stack(losses))
    return [{"loss": losses[-1][i], "t1": halves[i], "f": snap.f[i, :2, 0]} for i in range(len(seed))]


def run(folder: Any, size: str, **options: Any) -> mn.Table:
    grid, batch = GRIDS[size]
    return mn.sweep(work, grid, store=folder, together="seed", batch=batch, **options)


if __name__ == "__main__":
    folder, size, *when = sys.argv[1:]
    if when and when[0] == "train":
        happens, at = die, int(when[1])
    elif when:
        right: Any = writing.write_atomically
        writes = iter(range(1, 10_000))

        def half_written(path: Any, write: Any, need: int | None = None) -> None:
            if next(writes) == int(when[1]):

                def half(file: Any) -> None:
                    write(file)
                    file.truncate(file.tell() // 2)
                    file.flush()
                    die()

                right(path, half, need)
            right(path, write, need)

        writing.write_atomically = half_written
    run(folder, size)
