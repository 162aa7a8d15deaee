"""Compare the trajectories of LeNet and its linearisation during training (Samarin et al. 2022, figure A.2).

    python3 make.py python examples/trajectories_of_lenet.py [--out DIR] [--data DIR]

The paper finds that individual outputs of the two models follow different paths, but that statistics of the outputs
become more similar with width.  We compare the outputs for the correct class, whose target is 1, on test images after
each epoch.  Both models start from the same weights and use the same mini-batches, with the rates and the loss of
lenet_and_its_linearisation.py.  With the mean m and the standard deviation s over images, we define two distances:

    statistics   root mean square over epochs of ((m - m_lin)^2 + (s - s_lin)^2)^1/2
    paths        root mean square over images and epochs of (f - m) / s - (f_lin - m_lin) / s_lin

The second distance is 0 if the standardised outputs of the two models are equal, and 2^1/2 if they are uncorrelated.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, images, interval, lenet, placed, plus
from resuming import collected
from verdicts import MUCH, above

import minintk as mn
from minintk.arrays import to_host

SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (1, 2)},
    "evening": {"widths": (1, 2, 5, 10), "seeds": 4},
    "paper": {"widths": (1, 2, 5, 10, 25, 60), "n_train": 60_000, "n_test": 10_000, "epochs": 100, "seeds": 5},
}


def apart(f: Any, lin: Any) -> dict[str, float]:
    """Return both distances between two models, from their outputs (T, M) for M images after each of T epochs."""
    moments = [np.stack([each.mean(1), each.std(1)]) for each in (f, lin)]
    places = [(each - m[:, None]) / s[:, None] for each, (m, s) in zip((f, lin), moments)]
    statistics = np.mean(np.sum((moments[0] - moments[1]) ** 2, axis=0))
    return {"statistics": float(statistics**0.5), "paths": float(np.mean((places[0] - places[1]) ** 2) ** 0.5)}


def trained(
    data: str, n_train: int, n_test: int, epochs: int, width: int, seed: tuple[int, ...]
) -> list[dict[str, Any]]:  # fmt: skip
    """Return, for each seed, both distances, and m and s of both models' outputs after each epoch."""
    train, test = images(data, n_train, n_test)
    (x, y), (x_test, y_test) = placed(*train.standardise().one_hot()), test.standardise(fit=train).one_hot()
    net = mn.Network(lenet(x.shape[1:], width), x.shape[1:], mn.PyTorch())
    drawn = np.stack([net.init(np.random.default_rng((width, e)), dtype=np.float32) for e in seed])
    (theta0, x_test), label, steps = placed(drawn, x_test), y_test.argmax(-1), len(x) // 32
    lr, outputs = 0.03 if data == "digits" else 0.01, []
    for model, towards in ((net, None), (mn.Linearized(net, theta0), theta0)):
        decay = mn.StepDecay(lr, every=max(1, 3 * epochs * steps // 10))
        sgd = mn.SGD(decay, momentum=0.9, weight_decay=5e-6 / lr, towards=towards)
        run = partial(mn.train, model, theta0, x, y, loss=mn.sum_of_squares, optimizer=sgd, steps=epochs * steps,
                      batch_size=32, rng=np.random.default_rng(0), every=steps)  # fmt: skip

        def of_the_right_class(snap: Any, model: Any = model) -> list[Any]:
            parts = [to_host(model(snap.theta, x_test[i : i + 250])) for i in range(0, len(x_test), 250)]
            f = np.concatenate(parts, axis=1)
            found: list[Any] = f[:, np.arange(len(label)), label].tolist()
            return found

        def go_on(state: Any, run: Any = run) -> Any:
            return run(resume=state)

        rows = collected(go_on, of_the_right_class, theta0, data, n_train, epochs, width, seed, towards is not None)
        outputs.append(np.array(rows)[1:])  # (T, E, M), without the initial outputs, which are equal
    both = [(f, lin) for f, lin in zip(*(np.moveaxis(each, 1, 0) for each in outputs))]
    curves = [[[each.mean(1).tolist(), each.std(1).tolist()] for each in pair] for pair in both]
    return [apart(*pair) | {"curves": curve} for pair, curve in zip(both, curves)]


def main(
    s: Setting, widths: tuple[int, ...], n_train: int = 2000, n_test: int = 1000, epochs: int = 10, seeds: int = 6
) -> Found:
    """Return both distances between the models at each width, and plot m and s against the epoch."""
    grid: dict[str, Any] = {"width": widths, "seed": range(seeds)}
    runs = s.sweep(trained, grid, together="seed", data=s.data, n_train=n_train, n_test=n_test, epochs=epochs)
    found: Found = {name: [interval(v) for v in runs[name]] for name in ("statistics", "paths")}
    fall = interval(runs["statistics"][0] - runs["statistics"][-1])
    where: dict[str, Any] = {"of": "seeds", "size": f"{n_train} images, {epochs} epochs", "seeds": seeds}

    def at_widths(name: str) -> str:
        return ", ".join(f"{plus(value)} (x{w})" for value, w in zip(found[name], widths))

    rows = [
        Row("outputs of LeNet and of LinLeNet over training: distance of means and deviations", "falls with width",
            at_widths("statistics"), agrees=above([fall]), why="open", **where),
        Row("the same: distance of paths, standardised; of independent ones 1.41", "not close path-wise",
            at_widths("paths"), agrees=above(found["paths"], MUCH), why="open", **where),
    ]  # fmt: skip
    found |= {"widths": widths, "curves": np.mean(runs["curves"], axis=1).tolist()}

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(1, len(widths), figsize=(4.5 * len(widths), 3.8), squeeze=False, sharey=True,
                                 layout="constrained")  # fmt: skip
        for panel, width, curves in zip(panels[0], widths, found["curves"]):
            for (mean, deviation), name, colour in zip(np.array(curves), ("LeNet", "LinLeNet"), ("C0", "C1")):
                at = np.arange(1, len(mean) + 1)
                panel.plot(at, mean, f"{colour}o-", label=f"{name}, mean")
                panel.fill_between(at, mean - deviation, mean + deviation, color=colour, alpha=0.2, lw=0)
            panel.axhline(1, color="k", ls="--", lw=0.8, label="target")
            panel.set(xlabel="epoch", title=f"{s.data}, x{width}")
        panels[0, 0].set_ylabel("output of the right class, ± deviation")
        panels[0, 0].legend(fontsize=8)

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "trajectories_of_lenet")
