"""Show that the gap between LeNet and its linearisation closes with width (Samarin et al. 2022, figures 2, 3 and 4).

    python3 make.py python examples/lenet_and_its_linearisation.py [--out DIR] [--data DIR --set mnist|cifar10]

Both models start from the same weights (PyTorch's initialisation) and are trained on the same batches of 32.  The loss
is the sum of squared errors on one-hot targets.  Training uses momentum .9, and the rate falls tenfold after every 30 %
of the epochs.  In the paper, width improves the network's accuracy slightly and the linearisation's considerably.
There, the gap is wider on shifted digits, especially at small width.  The linearisation is linear in u = theta -
theta_0, so its weights decay towards theta_0.  The linearisation is also trained at ten times the rate.

The paper's loss is sum_l (f_l - y_l)^2 and its rate is .1.  For this loss, heavy-ball descent with momentum m on the
linearisation is stable up to the rate 2 (1 + m) / (2 lambda_max(Theta) / N) for N examples, which falls with the width.
On MNIST this bound is about .5, .3, .15 and .08 at widths 1, 2, 5 and 10.  The linearisations of widths 25 and 60
therefore cannot have been trained with that loss at a rate of .1.  They can be trained at this rate if the loss is a
mean over the ten classes (PyTorch's MSELoss).  The rate here is then .01, and the weight decay is 5e-4, not 5e-5.

The sizes "small" and "evening" use up to 2,000 images for 10 epochs.  The size "paper" uses all images for 100 epochs,
at widths up to 60.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import (
    Found,
    Row,
    Setting,
    command_line,
    finish,
    images,
    interval,
    lenet,
    percent,
    placed,
    right,
    stable_rate,
    tested,
)
from resuming import unfinished
from verdicts import POINTS, above, near, percent_of

import minintk as mn

SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (1, 2)},
    "evening": {"widths": (1, 2, 5, 10)},
    "paper": {"widths": (1, 2, 5, 10, 25, 60), "n_train": 60_000, "n_test": 10_000, "epochs": 100, "seeds": 5},
}
PAPER = {("mnist", 0): (4.67, 0.48), ("mnist", 7): (27.65, 3.91), ("cifar10", 0): (20.22, 13.17)}
"""The paper's gaps at widths 1 and 60, in percentage points."""
KINDS = {"LeNet": (False, 1), "LinLeNet": (True, 1), "LinLeNet, 10 x rate": (True, 10)}
"""The trained models as pairs (True if linearised, multiple of the rate)."""


def train(
    data: str, n_train: int, n_test: int, epochs: int, shift: int, width: int, kind: str, seed: tuple[int, ...]
) -> list[dict[str, Any]]:
    """Train; return each network's test scores (0 or 1) and training accuracy, and the first network's stable rate."""
    parts = images(data, n_train, n_test)
    if shift:
        rng = np.random.default_rng(1)
        parts = parts[0].shifted(shift, rng), parts[1].shifted(shift, rng)
    x, y, x_test, y_test = placed(*parts[0].standardise().one_hot(), *parts[1].standardise(fit=parts[0]).one_hot())
    net = mn.Network(lenet(x.shape[1:], width), x.shape[1:], mn.PyTorch())
    drawn = np.stack([net.init(np.random.default_rng((width, e)), dtype=np.float32) for e in seed])
    theta0 = placed(drawn)[0]
    (linear, faster), steps = KINDS[kind], len(x) // 32
    lr = (0.03 if data == "digits" else 0.01) * faster
    with unfinished(data, n_train, epochs, shift, width, kind, seed) as folder:
        run = mn.fit(
            mn.Linearized(net, theta0) if linear else net, theta0, x, y, loss=mn.sum_of_squares, epochs=epochs,
            batch_size=32, rng=np.random.default_rng(0), checkpoint=folder, optimizer=mn.SGD(
                lr=mn.StepDecay(lr, every=max(1, 3 * epochs * steps // 10)), momentum=0.9, weight_decay=5e-6 / lr,
                towards=theta0 if linear else None),
        )  # fmt: skip
    score = right(run.model, run.theta, x_test, y_test).astype(int)
    train_score = np.reshape(run.history.last["accuracy"], -1)
    stable = stable_rate(net, theta0[0], x[:100])
    return [{"right": s.tolist(), "train": float(t), "stable": stable} for s, t in zip(score, train_score)]


def main(
    s: Setting, widths: tuple[int, ...], shifts: tuple[int, ...] = (), n_train: int = 2000,
    n_test: int = 2000, epochs: int = 10, seeds: int = 2,
) -> Found:  # fmt: skip
    """Return all accuracies and gaps for each width and shift, with 95 % intervals, and plot them."""
    shifts = shifts or {"digits": (0, 2), "mnist": (0, 7)}.get(s.data, (0,))
    axes: dict[str, Any] = {"shift": shifts, "width": widths, "kind": tuple(KINDS), "seed": range(seeds)}
    fixed: dict[str, Any] = {"data": s.data, "n_train": n_train, "n_test": n_test, "epochs": epochs}
    runs = s.sweep(train, axes, together="seed", **fixed)
    score, learnt = runs["right"], runs["train"].mean(-1)  # (shifts, widths, kinds, seeds, images), NaN if diverged
    lost = np.any(runs.diverged, axis=-1, keepdims=True)[..., 0]
    rows, gap = [], {}
    size = f"{n_train} images, {epochs} epochs"

    def at_widths(values: list[str]) -> str:
        return ", ".join(f"{value} (x{w})" for value, w in zip(values, widths))

    for i, shift in enumerate(shifts):
        said = PAPER.get((s.data, shift))
        for k, kind in enumerate(list(KINDS)[1:], 1):
            gaps = gap[f"{kind}, {shift}"] = [tested(score[i, w, 0] - score[i, w, k]) for w in range(len(widths))]
            ours = ["diverges" if lost[i, w, k] else percent(g) for w, g in enumerate(gaps)]
            fall = above([tested((score[i, 0, 0] - score[i, 0, k]) - (score[i, -1, 0] - score[i, -1, k]))])
            if said and k == 1 and widths[0] == 1:
                fall = percent_of(fall & near(gaps[:1], said[0] / 100, POINTS))
            paper = (
                "falls: {} at x1, {} at x60".format(*said) if said and k == 1 else "falls with width" if k == 1 else "-"
            )
            rows.append(Row(f"LeNet - {kind}, test, shifts up to {shift} (points)", paper, at_widths(ours),
                            "both" if seeds > 1 else "images", size, seeds, fall if k == 1 else None))  # fmt: skip
        for k, name in ((0, "LeNet"), (1, "LinLeNet")):
            tests = [percent(tested(score[i, w, k])) for w in range(len(widths))]
            rows.append(Row(f"{name}, test accuracy, shifts up to {shift} (%)", "-", at_widths(tests),
                            "both" if seeds > 1 else "images", size, seeds))  # fmt: skip
    stable = [interval(np.unique(r)) for r in runs["stable"][0, :, 0]]

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(1, len(shifts), figsize=(5.5 * len(shifts), 4), squeeze=False, layout="constrained")
        for i, panel in enumerate(panels[0]):
            for k, kind in enumerate(KINDS):
                mean, half, *_ = zip(*(tested(score[i, w, k]) for w in range(len(widths))))
                line = panel.errorbar(widths, 100 * np.array(mean), 100 * np.array(half), fmt="os^"[k] + "-",
                                      capsize=3, label=kind)  # fmt: skip
                panel.plot(widths, 100 * learnt[i, :, k], ":", color=line[0].get_color())
            panel.plot([], [], "k:", label="training")
            panel.axhline(
                at_one := 100 * float(np.mean(score[i, 0, 0])), color="0.5", ls="--", lw=0.8, label="LeNet x1"
            )
            if (gaps := PAPER.get((s.data, shifts[i]))) and widths[0] == 1:
                label = f"the paper's gaps below it: {gaps[0]:g} at x1, {gaps[1]:g} at x60"
                panel.plot([1, widths[-1]], [at_one - gap for gap in gaps], "k*", ms=9, label=label)
            panel.set(xscale="log", xlabel="width factor", title=f"{s.data}, shifts up to {shifts[i]} pixels")
            panel.set_xticks(widths, map(str, widths)), panel.minorticks_off()
        panels[0, 0].set_ylabel("accuracy, %; 95 % intervals")
        for panel in panels[0]:
            panel.legend(fontsize=7)

    found = {"widths": widths, "shifts": shifts, "gap": gap, "stable rate": stable, "train": learnt.tolist()}
    found |= {"test": score.mean((-2, -1)).tolist(), "diverged": lost.tolist()}
    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "lenet_and_its_linearisation")
