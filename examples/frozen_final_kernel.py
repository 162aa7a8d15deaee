"""Test that the final tangent kernel performs like the trained network (Geiger et al. 2020, figure 5 and appendix C).

    python3 make.py python examples/frozen_final_kernel.py [--out DIR] [--data DIR] [--scale small|evening|paper]

The script trains a network, freezes its final tangent kernel, and trains with this kernel in function space, from f =
0.  The paper claims that the frozen final kernel performs like the network.  The frozen initial kernel gives the
outputs of the lazy network, which differ from the outputs in the feature regime.  Only a task on which feature learning
helps can distinguish the two kernels.  On 200 of the 8 x 8 digits the accuracies of the network and of the frozen
initial kernel differ by .04 +- .98 points, so these digits cannot test the claim.  We use y = sign(x_1 x_2) of ten
normal inputs: only two directions matter, and no linear function of the inputs predicts y.  With --data, the script
also uses images of MNIST. The paper uses residual networks on CIFAR-10 at alpha = 1.  Our networks are fully connected.
We train them in the feature regime, at alpha = 1, and in the lazy regime.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, interval, percent, placed, plus, tested
from geiger import frozen, in_widths, network, start, task, trained
from verdicts import POINTS, above, near, percent_of

import minintk as mn
from minintk.arrays import to_host
from minintk.diagnostics import relative_distance, target_alignment

REGIMES = {"feature": 0.1, "alpha = 1": 0.0, "lazy": 1000.0}
"""Values of s = sqrt(h) alpha. The value 0 means alpha = 1, as in the paper's figure."""
SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (24, 48), "depth": 2, "seeds": 5, "n_train": 250, "n_test": 1000},
    "evening": {"widths": (30, 60, 120), "depth": 2, "seeds": 10, "n_train": 500, "n_test": 2000},
    "paper": {"widths": (100, 200, 400, 800), "depth": 5, "seeds": 10, "n_train": 5000, "n_test": 10_000},
}
KINDS = ("network", "last", "first")
FEW = 40
"""The number of test examples shown in the figures of kernels."""


def compared(
    n_train: int, n_test: int, depth: int, data: str, s: float, width: int, seed: tuple[int, ...]
) -> list[dict[str, Any]]:  # fmt: skip
    """Return each seed's test errors (M,), 0 or 1, of the network and of its frozen final and initial kernels.

    Also return the distances of both kernels' predictions from the network's outputs, the kernels' alignments with the
    labels, and the kernel matrices of FEW test examples.
    """
    (x, y), (x_test, y_test) = (placed(*part) for part in task(data, n_train, n_test))
    net = network(width, depth)
    theta0 = start(net, seed)
    model, theta = trained(net, theta0, s or sqrt(width), x, y)
    f = {"network": model(theta, x_test)}
    f |= {name: frozen(model, t, x, y, x_test) for name, t in (("last", theta), ("first", theta0))}
    away = {name: to_host(relative_distance(f[name], f["network"])) for name in KINDS[1:]}
    wrong = {name: (to_host(g * y_test)[..., 0] <= 0).astype(int) for name, g in f.items()}
    order = np.argsort(to_host(y_test)[:FEW, 0], kind="stable")[::-1].copy()
    kernels = {n: to_host(mn.ntk(net, t, x_test[:200])) for n, t in (("first", theta0), ("last", theta))}
    return [
        {f"{name} wrong": wrong[name][e].tolist() for name in KINDS}
        | {f"{name} away": float(away[name][e]) for name in KINDS[1:]}
        | {f"{n} alignment": float(target_alignment(k[e], to_host(y_test)[:200])) for n, k in kernels.items()}
        | {f"{n} kernel": k[e][np.ix_(order, order)].round(4).tolist() for n, k in kernels.items()}
        for e in range(len(seed))
    ]


def main(
    s: Setting, widths: tuple[int, ...], depth: int, seeds: int, n_train: int, n_test: int
) -> Found:  # fmt: skip
    """Return the test errors of the network and of its frozen kernels for each task, regime and width."""
    tasks = ("sparse",) if s.data == "digits" else ("sparse", s.data)
    grid = {"data": tasks, "s": tuple(REGIMES.values()), "width": widths, "seed": range(seeds)}
    runs = s.sweep(compared, grid, together="seed", n_train=n_train, n_test=n_test, depth=depth)
    wrong = {kind: runs[f"{kind} wrong"] for kind in KINDS}  # (task, regime, width, seed, test example)
    found: Found = {"widths": widths, "tasks": tasks, "behind": {}, "error": {}, "distance": {}, "alignment": {}}
    rows = []
    for i, data in enumerate(tasks):
        where: dict[str, Any] = {
            "size": f"{n_train} of {data}, L = {depth}, h = {', '.join(map(str, widths))}",
            "seeds": seeds,
        }
        for j, name in enumerate(REGIMES):
            for kind in KINDS:
                found["error"][f"{data}, {name}, {kind}"] = [tested(w) for w in wrong[kind][i, j]]
            for kind, said in (("last", "0"), ("first", "0" if name == "lazy" else "> 0")):
                gaps = [tested(a - b) for a, b in zip(wrong[kind][i, j], wrong["network"][i, j])]
                found["behind"][f"{data}, {name}, {kind}"] = gaps
                found["distance"][f"{data}, {name}, {kind}"] = [interval(v) for v in runs[f"{kind} away"][i, j]]
                zero = said != "0" and near(gaps, 0, POINTS).agrees
                agrees = percent_of(near(gaps, 0, POINTS)) if said == "0" else above(gaps)
                errors = ", ".join(f"{100 * e[0]:.1f}" for e in found["error"][f"{data}, {name}, network"])
                why = "features do not help on so few digits" if zero else "open"
                rows.append(Row(
                    f"{data}: frozen {kind} kernel - network, {name}, test error (points)", said,
                    f"{', '.join(percent(g) for g in gaps)} (network: {errors} %)", "both", agrees=agrees, why=why,
                    **where,
                ))  # fmt: skip
        before, after = (interval(runs[f"{kind} alignment"][i, 0].ravel()) for kind in ("first", "last"))
        found["alignment"][data] = before, after
        rows.append(Row(
            f"{data}: alignment of the kernel with the labels, feature regime, first and last", "grows",
            f"{plus(before, 3)}, {plus(after, 3)}", "seeds", **where,
            agrees=above([interval((runs["last alignment"] - runs["first alignment"])[i, 0].ravel())]),
        ))  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(len(tasks), 5, figsize=(16, 3.5 * len(tasks)), squeeze=False, layout="constrained")
        for i, data in enumerate(tasks):
            labels = np.sort((task(data, n_train, n_test)[1][1][:FEW, 0] < 0).astype(int))
            edge = np.count_nonzero(labels == 0) - 0.5
            for axes, kind in zip(panels[i], ("first", "last")):
                kernel = runs[f"{kind} kernel"][i, 0, -1, 0]
                axes.imshow(kernel, vmin=min(0.0, float(kernel.min())), interpolation="nearest")
                axes.plot([edge, edge], [-0.5, FEW - 0.5], "w", [-0.5, FEW - 0.5], [edge, edge], "w", lw=0.5)
                axes.set(title=f"{data}: {kind} kernel, feature, h = {widths[-1]}", xlabel="test examples by class")
            for axes, name in zip(panels[i, 2:], REGIMES):
                for k, (kind, style) in enumerate(zip(KINDS, ("o-", "s-", "^-"))):
                    mean, half = 100 * np.array([e[:2] for e in found["error"][f"{data}, {name}, {kind}"]]).T
                    label = kind if kind == "network" else f"frozen {kind} kernel"
                    at = np.array(widths) * 1.04 ** (k - 1)
                    axes.errorbar(at, mean, half, fmt=f"C{k}{style}", capsize=2, ms=4, lw=1, label=label)
                in_widths(axes, widths)
                axes.set(ylabel="test error, %", title=f"{data}: {name}")
            panels[i, 2].legend(fontsize=8)

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "frozen_final_kernel")
