"""Measure how far weights, outputs and kernels move during training: Lee et al. 2019, figures 1 and S6, eq. (17).

    python3 make.py python examples/lee_movement.py [--out DIR] [--data DIR]

Networks of width n learn to classify 64 or 128 images into ten classes by full-batch descent at the paper's rate.  The
relative change of the input and output weights, whose number grows as n, falls as n^(-1/2).  The relative change of the
n x n hidden weights falls as n^(-1).  The relative changes of the tangent kernel and of the last hidden layer's kernel
(the empirical NNGP kernel) are O(n^(-1/2)), as is the distance of the outputs from the linearisation.  The paper finds
exponents closer to -1 for the kernels, as the theory predicts for smooth activations.  Each value is the maximum over
snapshots after 0, 1, 2, 4, ... steps.

The paper's rate 1 is stable for a mean over the ten outputs: the bound is 6.9 for three ReLU layers with sigma_b = 0 on
standardised digits of MNIST. The bound is .69 for a sum over outputs, and .005 for a sum over outputs and examples.
"""

from __future__ import annotations

from typing import Any

import lee
import numpy as np
from common import Found, Row, Setting, command_line, finish, interval
from verdicts import EXPONENT, at_most, near, sure

import analytic as an
import minintk as mn
from minintk.arrays import to_host
from minintk.diagnostics import relative_distance, weight_movement

SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (32, 64, 128, 256, 512), "seeds": 3, "steps": 128, "n_train": 64},
    "evening": {"widths": (64, 128, 256, 512, 1024), "seeds": 3, "steps": 1024, "n_train": 128},
    "paper": {"widths": tuple(2**k for k in range(5, 13)), "seeds": 5, "steps": 2**17, "n_train": 128},
}
CASES = {"3 x ReLU": ("relu", 3), "3 x tanh": ("tanh", 3), "1 x ReLU": ("relu", 1)}
KINDS = (
    "input weights", "output weights", "middle weights", "NTK", "NNGP",
    "all weights", "outputs, train", "outputs, test",
)  # fmt: skip
CLAIMS = {
    "change of input, output weights": ("-1/2", -0.5, KINDS[:2]),
    "change of middle weights": ("-1", -1.0, KINDS[2:3]),
    "change of NTK, NNGP kernel": ("at most -1/2, closer to -1", -0.75, KINDS[3:5]),
    "|theta - theta_0| / sqrt(n), |f - f_lin| train, test": ("at most -1/2 (eq. 17)", -0.5, KINDS[5:]),
}
"""Rows {claim: (the paper's exponent in words, the number in the test, the quantities in KINDS that it describes)}."""


def work(
    data: str, phi: str, depth: int, n_train: int, steps: int, eta: float, width: int, seed: tuple[int, ...]
) -> list[dict[str, Any]]:
    """Train, and return {kind: values after 0, 1, 2, 4, ... steps} for each seed, with the keys KINDS and "loss"."""
    x, y, x_test, _ = lee.problem(data, "classes", n_train, 32)
    C, at = y.shape[1], lee.powers(steps)
    lr, points = eta / C, np.concatenate([x, x_test])
    net = mn.Network(lee.spec(phi, depth, width, C), x.shape[1:])
    trunk = mn.Network(mn.Sequential(*net.spec.layers[:-1]), x.shape[1:])
    theta0 = lee.start(net, seed)
    (low,) = lee.like(theta0, x)
    predicted = np.stack([lee.linearised(net, theta, x, y, points, lr, at) for theta in theta0], axis=1)  # (T, E, A, C)

    def kernels(theta: Any) -> dict[str, Any]:
        return {"NTK": mn.ntk(net, theta, low), "NNGP": mn.nngp(trunk, theta[:, : trunk.size], low)}

    first = kernels(theta0)
    weights = [name for name in net.layout.slices if name.endswith(".W")]

    def read(snap: mn.Snapshot) -> dict[str, Any]:
        moved = {name: to_host(v) for name, v in weight_movement(net, theta0, snap.theta).items()}
        now = {"input weights": moved[weights[0]], "output weights": moved[weights[-1]]}
        if depth > 1:  # the rms is the joint movement, because these layers have equal size
            now["middle weights"] = lee.rms([moved[name] for name in weights[1:-1]], axis=0)
        now |= {name: to_host(relative_distance(k, first[name])) for name, k in kernels(snap.theta).items()}
        now["all weights"] = lee.distance(snap.theta, theta0) / width**0.5
        off = lee.rms(lee.outputs(net, snap.theta, points) - predicted[at.index(snap.step)], axis=-1)
        now["outputs, train"], now["outputs, test"] = (
            lee.rms(part, axis=1) for part in np.split(off, [len(x)], axis=1)
        )
        return now | {"loss": to_host(snap.loss)}

    found = lee.at_steps(net, theta0, x, y, lr, at, read)
    return [{name: [float(now[name][e]) for now in found] for name in found[0]} for e in range(len(seed))]


def main(
    s: Setting, widths: tuple[int, ...], seeds: int, steps: int, n_train: int, eta: float = 1.0,
    cases: tuple[str, ...] = tuple(CASES),
) -> Found:  # fmt: skip
    """Return the exponents of the maxima over time, fitted to the upper half of the widths, with 95 % intervals.

    Plot the maxima against width.
    """
    found: Found = {"widths": widths, "steps": lee.powers(steps), "exponents": {}, "suprema": {}, "bound": {}}
    rows, half, x = [], min(len(widths) // 2, len(widths) - 2), lee.problem(s.data, "classes", n_train, 32)[0]
    for case in cases:
        phi, depth = CASES[case]
        runs = s.sweep(
            work, {"width": widths, "seed": range(seeds)}, together="seed", data=s.data, phi=phi, depth=depth,
            n_train=n_train, steps=steps, eta=eta,
        )  # fmt: skip
        found["bound"][case] = 10 * an.max_learning_rate(an.kernel(lee.spec(phi, depth, 1)).ntk(x))
        for kind in runs.results[0].keys() & set(KINDS):
            sup = runs[kind].max(axis=-1)  # (widths, seeds)
            found["suprema"][f"{case}, {kind}"] = sup.tolist()
            found["exponents"][f"{case}, {kind}"] = lee.exponent(widths[half:], sup[half:])
        for claim, (said, power, kinds) in CLAIMS.items():
            fits = [found["exponents"][f"{case}, {kind}"] for kind in kinds if f"{case}, {kind}" in found["exponents"]]
            if fits:
                rows.append(
                    Row(f"{case}: {claim} ~ n^b: b", said, ", ".join(map(lee.words, fits)), "seeds",
                        f"{n_train} images, n = {widths[half]} to {widths[-1]}, {steps} steps", seeds,
                        at_most(fits, power) if "most" in said else near(fits, power, EXPONENT), "open")
                )  # fmt: skip
        found["suprema"][f"{case}, loss"] = (runs["loss"][..., -1] / runs["loss"][..., 0]).tolist()

    bound = found["bound"][cases[0]]
    rows.append(
        Row(f"{cases[0]}: largest stable rate of a mean over examples and outputs, over examples, of a sum",
            f"{eta:g} used", f"{bound:.3g}, {bound / 10:.2g}, {bound / 10 / n_train:.1g}", "",
            f"{n_train} images, theory", None, sure(bound > eta, f"> {eta:g}"))
    )  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(
            1, len(cases), figsize=(4.8 * len(cases), 5.6), squeeze=False, layout="constrained", sharey=True
        )
        n, colours = np.array(widths, float), (*(f"C{i}" for i in range(7)), "0.5")
        for panel, case in zip(panels[0], cases):
            for i, kind in enumerate(KINDS):
                if f"{case}, {kind}" not in found["suprema"]:
                    continue
                mean, half_interval = np.transpose([interval(v)[:2] for v in found["suprema"][f"{case}, {kind}"]])
                label = f"{kind}: {found['exponents'][f'{case}, {kind}'][0]:.2f}"
                look = {"fmt": f"{'os^vDP*X'[i]}-", "color": colours[i], "ms": 4, "lw": 1}
                panel.errorbar(n, mean, half_interval, label=label, **look)
            middle = "middle weights" if f"{case}, middle weights" in found["suprema"] else "NNGP"
            for kind, power, style in (("output weights", -0.5, "k--"), (middle, -1.0, "k:")):
                at = 0.8 * np.mean(found["suprema"][f"{case}, {kind}"], axis=1)[-1]
                panel.plot(n, at * (n / n[-1]) ** power, style, label=f"the paper's $n^{{{power:g}}}$")
            panel.set(yscale="log", title=f"{case}, {steps} steps of $\\eta$ = {eta:g}")
            lee.widths_axis(panel, widths)
            panel.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14))
        panels[0, 0].set_ylabel(f"supremum over training; {seeds} networks")

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "lee_movement")
