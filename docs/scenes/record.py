"""Record the scenes of docs/scenes.md: train the networks for every position of the sliders.

    python docs/scenes/record.py [widths] [alphas] [rates]        writes docs/scenes/NAME.json, a minute or two each

A scene is {"sliders": {name: [labels]}, "frames": [data for each position], ...}.  The last slider varies fastest.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import analytic as an
import minintk as mn
from minintk.diagnostics import kernel_movement

HERE = Path(__file__).resolve().parent
Scene = dict[str, Any]

WIDTHS = (16, 64, 256, 1024)
TIMES = (0, 1, 3, 10, 30, 100, 300, 1000)
STEP = 0.5


def row(a: Any, digits: int = 3) -> list[float]:
    """Return the entries of an array as a flat list, rounded to `digits` significant digits."""
    return [float(f"{v:.{digits}g}") for v in np.asarray(a, dtype=np.float64).ravel()]


def circle(angles: Any) -> Any:
    """Return the points at these angles on the circle of radius sqrt(2), as an array (N, 2)."""
    return np.sqrt(2) * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def widths(ns: Sequence[int] = WIDTHS, times: Sequence[int] = TIMES) -> Scene:
    """Record outputs on a circle of inputs for five networks, two linearisations and the infinite-width ensemble."""
    angles = np.array([-2.4, -1.5, -0.4, 0.6, 1.3, 2.5])
    y = np.array([[0.8], [-0.6], [0.7], [-0.7], [0.2], [0.9]])
    grid = np.linspace(-np.pi, np.pi, 73)
    x, x_test = circle(angles), circle(grid)

    def spec(n: int) -> mn.Sequential:
        return mn.Sequential(
            mn.Dense(n, w_std=1.5, b_std=0.3), mn.Erf(), mn.Dense(n, w_std=1.5, b_std=0.3), mn.Erf(), mn.Dense(1)
        )

    ensemble = an.ensemble(an.kernel(spec(1)), x, y, lr=STEP, by="descent")
    mean, cov = ensemble.predict(x_test, t=[float(t) for t in times], cov=True)
    std = np.sqrt(np.maximum(np.diagonal(cov, axis1=-2, axis2=-1), 0))
    frames = list[dict[str, Any]]()
    for n in ns:
        net = mn.Network(spec(n), (2,))
        theta0 = net.init(np.random.default_rng(0), ensemble=5)
        paths = []
        for model in (net, mn.Linearized(net, theta0)):
            found = {}
            for snap in mn.train(model, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(STEP), steps=max(times)):
                if snap.step in times:
                    found[snap.step] = model(snap.theta, x_test)[..., 0]
            paths.append(found)
        for i, t in enumerate(times):
            frames.append({
                "networks": [row(f) for f in paths[0][t]], "linearised": [row(f) for f in paths[1][t][:2]],
                "mean": row(mean[i]), "std": row(std[i]),
            })  # fmt: skip
    return {
        "sliders": {"width": [str(n) for n in ns], "steps": [str(t) for t in times]}, "start": [1, 5],
        "x": row(grid), "examples": [row(angles), row(y)], "frames": frames,
    }  # fmt: skip


ALPHAS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
ALONG = (0, 2, 5, 10, 20, 50, 100, 200, 500)
"""The recorded steps. The rate is a twentieth of the largest stable rate at the start."""


def alphas(which: Sequence[float] = ALPHAS, times: Sequence[int] = ALONG) -> Scene:
    """Record, for each alpha, the points of 60 ReLU neurons while they learn a teacher network of three neurons.

    The model is alpha (f - f_0).  At large alpha training is lazy; at small alpha the neurons move (Chizat, Oyallon
    and Bach 2019).  The point of the neuron `a` phi(w x) is |a| w, and the sign of `a` is recorded with it.
    """
    rng, n = np.random.default_rng(1), 60
    x = circle(rng.uniform(-np.pi, np.pi, 40))
    teacher = np.array([0.4, 2.3, -2.0]), np.array([1.0, -1.0, 1.0])
    y = sum(a * np.maximum(x @ np.array([np.cos(t), np.sin(t)]), 0) for t, a in zip(*teacher, strict=True))[:, None]
    net = mn.Network(mn.Sequential(mn.Dense(n, w_std=2**0.5), mn.ReLU(), mn.Dense(1)), (2,))
    theta0 = net.init(np.random.default_rng(2))
    frames = list[dict[str, Any]]()
    for alpha in which:
        model = mn.Centred(net, theta0, alpha)
        lr = 0.1 * mn.max_learning_rate(model, theta0, x, mn.mse) / 2
        for snap in mn.train(model, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(lr), steps=max(times)):
            if snap.step in times:
                w, a = net.layout.unpack(snap.theta).values()
                points = np.abs(a[:, 0]) * w
                frames.append({
                    "neurons": [row(points[0]), row(points[1])], "signs": row(np.sign(a[:, 0])),
                    "loss": row(snap.loss)[0], "kernel": row(kernel_movement(net, theta0, snap.theta, x))[0],
                })  # fmt: skip
    points = [row(np.cos(teacher[0])), row(np.sin(teacher[0])), row(teacher[1])]
    return {
        "sliders": {"alpha": [f"{a:g}" for a in which], "steps": [str(t) for t in times]}, "start": [1, len(times) - 1],
        "teacher": points, "frames": frames,
    }  # fmt: skip


RATES = tuple(2.0**k for k in range(-4, 9))
SIZES = (32, 64, 128, 256, 512)
BATCH = (1, 3, 10, 30)


def rates(ns: Sequence[int] = SIZES, steps: Sequence[int] = BATCH) -> Scene:
    """Record the median loss of three networks at each rate, in muP and in the standard parametrization."""
    x, y = mn.datasets.digits(dtype=np.float32).subset(100, np.random.default_rng(0)).one_hot()
    frames = list[dict[str, Any]]()
    for n in ns:
        spec = mn.Sequential(mn.Dense(n), mn.Tanh(), mn.Dense(n), mn.Tanh(), mn.Dense(10, w_std=0.3))
        found = {step: dict[str, list[float | None]]() for step in steps}
        for name, how in (("muP", mn.SpectralMuP()), ("standard", mn.Standard())):
            net = mn.Network(spec, x.shape[1:], how)
            theta0 = net.init(np.random.default_rng(0), ensemble=3, dtype=np.float32)
            for lr in RATES:
                losses = dict.fromkeys(steps, float("inf"))
                try:
                    with warnings.catch_warnings(), np.errstate(all="ignore"):
                        warnings.simplefilter("ignore", RuntimeWarning)  # the scene includes rates that are too large
                        for snap in mn.train(
                            net, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(lr / 16), steps=max(steps)
                        ):
                            if snap.step in steps:
                                losses[snap.step] = float(np.median(snap.loss))
                except FloatingPointError:
                    pass
                for step in steps:  # None replaces losses of 2 or more, as after divergence
                    loss = losses[step]
                    found[step].setdefault(name, []).append(row(loss)[0] if loss < 2 else None)
        frames += [found[step] for step in steps]
    return {
        "sliders": {"width": [str(n) for n in ns], "steps": [str(t) for t in steps]}, "start": [1, 3],
        "rates": row([lr / 16 for lr in RATES]), "frames": frames,
    }  # fmt: skip


SCENES: dict[str, Callable[[], Scene]] = {"widths": widths, "alphas": alphas, "rates": rates}

if __name__ == "__main__":
    for name in sys.argv[1:] or SCENES:
        text = json.dumps(SCENES[name](), separators=(",", ":"), allow_nan=False)
        (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        sys.stdout.write(f"{name}.json: {len(text) / 1000:.0f} kB\n")
