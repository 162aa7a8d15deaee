"""Start a training run that kills itself with SIGKILL at a given point.

python interrupted.py FOLDER NAME loss 37       at the 37th evaluation of the loss
python interrupted.py FOLDER NAME write 3       in the middle of writing the third checkpoint
python interrupted.py FOLDER NAME               not at all
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import minintk as mn
from minintk.arrays import array_namespace, to_library
from minintk.spec import zoo
from minintk.training import checkpoints


def probe(net: mn.Network, theta: Any) -> Any:
    """Return four inputs for the network, in the array library of theta."""
    x = np.random.default_rng(8).standard_normal((4, *net.input_shape)).astype(str(theta.dtype))
    return to_library(x, array_namespace(theta))


MODELS: dict[str, Callable[[mn.Network, Any], mn.Model]] = {
    "network": lambda net, theta: net,
    "linearised": mn.Linearized,
    "iterative": lambda net, theta: mn.IterativelyLinearized(net, theta, every=17),
    "moved": lambda net, theta: mn.IterativelyLinearized(net, theta, mn.Moved(0.3, probe(net, theta))),
    "centred": lambda net, theta: mn.Centred(mn.IterativelyLinearized(net, theta, every=17), theta, 2.0),
}


class Fatal(mn.SoftmaxCrossEntropy):
    """A loss that calls `happens` when it is evaluated for the `at`-th time."""

    calls = 0
    at: int = -1
    happens: Callable[[], None] = staticmethod(lambda: None)

    def __call__(self, f: Any, y: Any) -> Any:
        Fatal.calls += 1
        if Fatal.calls == Fatal.at:
            Fatal.happens()
        return super().__call__(f, y)


def prepare(at: int = -1, happens: Callable[[], None] = lambda: None) -> None:
    """Make the next run call `happens` at the `at`-th evaluation of the loss."""
    Fatal.calls, Fatal.at, Fatal.happens = 0, at, staticmethod(happens)


def run(folder: str | None, name: str = "network", **changes: Any) -> mn.Run:
    """Train for 100 steps with momentum, a schedule, mini-batches and shifts.

    name : a key of MODELS, "members" (an ensemble of three) or "lenet5".
    """
    rng = np.random.default_rng(0)
    digits = mn.datasets.digits(dtype=np.float32)
    data, test = (digits.enlarged(3, frame=2) if name == "lenet5" else digits.images()).split(130, 100, rng)
    (x, y), (x_test, y_test) = data.one_hot(), test.one_hot()
    if name == "lenet5":
        net = mn.Network(zoo.lenet5(), (28, 28, 1), mn.PyTorch())
    else:
        net = mn.Network(mn.Sequential(mn.Flatten(), *zoo.mlp(2, 30, 10)), (8, 8, 1))
    theta = net.init(rng, ensemble=3 if name == "members" else None, dtype=np.float32)
    model = MODELS.get(name, MODELS["network"])(net, theta)
    optimizer = mn.SGD(lr=mn.Cosine(0.05 if name == "lenet5" else 0.3, 100), momentum=0.9, weight_decay=1e-4)
    how: dict[str, Any] = {
        "loss": Fatal(), "optimizer": optimizer, "steps": 100, "batch_size": 8, "rng": rng, "augment": mn.Shift(1),
        "test": (x_test, y_test), "checkpoint": folder,
    }  # fmt: skip
    with threadpool_limits(1, "blas"):  # the bits of the result depend on the number of threads
        return mn.fit(model, theta, x, y, **(how | changes))


def die() -> None:
    """Kill this process with SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    folder, name, *when = sys.argv[1:]
    if when and when[0] == "loss":
        prepare(int(when[1]), die)
    elif when:
        right, writes = np.savez, iter(range(1, 1000))

        def half_written(file: Any, **arrays: Any) -> None:
            if next(writes) == int(when[1]):
                right(file, theta=arrays["theta"][: len(arrays["theta"]) // 2])
                file.flush()
                die()
            right(file, **arrays)

        checkpoints.np.savez = half_written  # type: ignore[attr-defined]
    run(folder, name)
