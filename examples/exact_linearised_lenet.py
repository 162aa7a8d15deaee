"""Solve the linearised LeNet exactly and explain why a narrow one overfits (Samarin et al. 2022, tables 1 and 2).

    python3 make.py python examples/exact_linearised_lenet.py [--out DIR] [--data DIR]

The task is to separate the first class from all others with a single output.  SGD trains LeNet with weight decay, and
its linearisation with decay towards theta_0.  The Gram matrix J J' gives the linearisation's minimum-norm least-squares
solution.  If J has rank N, this solution fits all N images.  In the paper, however, this solution is less accurate than
SGD at width 1 (97.8 % against 99.61 %), and much less accurate on shifted digits.  SGD therefore regularises, and with
a suitable ridge the exact solution should be as accurate.  Gradient flow stopped at SGD's time, t = 2 lr steps / (1 -
momentum), should have the same effect, because it too suppresses directions with small eigenvalues of J J'.

At width 1 the paper's network has P = 60,941 weights for N = 60,000 equations.  With 867 digits or 1,960 images of
MNIST, a small LeNet has nearly the paper's ratios P / N, about 1.016, 3.9 and 24 at widths 1, 2 and 5.  At this size
the script can also run at widths that the paper omits.  The script interpolation_threshold.py explains the result at
width 1.  The size "paper" uses LeNet-5 at widths 1 to 60 on 60,000 images.

With more than 20,000 images the eigenvectors of J J' do not fit in memory.  On the host, each ridge then needs a
Cholesky factor, computed in panels of 2,048 rows, and the solution with the smallest ridge replaces the exact one.
With 60,000 images and width 1, a factor takes 14.4 GB. Each ridge takes four hours on one core: three passes over J J'
at 2.2 us per pair of images, and half an hour for the factor.
"""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, interval, percent, right
from interpolation_threshold import exact, problem
from resuming import unfinished
from verdicts import above

import analytic as an
import minintk as mn
from minintk.arrays import array_namespace, on_host

SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (1, 2, 5)},
    "evening": {"widths": (1, 2, 5, 10), "seeds": 5},
    "paper": {"widths": (1, 2, 5, 10, 25, 60), "n_train": 60_000, "epochs": 100},
}
AT_ONCE = 20_000
"""The largest number of images for which the host computes all eigenvectors of J J', in 16 GB of memory."""
RIDGES = tuple(float(10.0**k) for k in range(-5, 4))
PAPER = {0: "97.8, 99.86, 99.89 at x1, x2, x5; SGD 99.61 at x1", 1: "86.05, 98.7, 99.17; SGD 95.48 at x1 (7 pixels)"}
SAYS = {"solver": "exact solution", "linearised": "linearised by SGD", "LeNet": "LeNet by SGD",
        "ridge": "exact solution, best ridge", "stopped": "flow, stopped at SGD's time"}  # fmt: skip


def solved(data: str, n_train: int, shift: int, width: int, seed: int, sgd_time: float) -> dict[str, Any]:
    """Return P / N (weights per image), and the test and training accuracies of the exact solution.

    Also return the test accuracies of regression with each ridge, and of gradient flow stopped at SGD's time.
    """
    net, theta0, (x, y, x_test, y_test) = problem(data, n_train, shift, width, seed)
    xp, found = array_namespace(x), {"P / N": net.size / len(x)}
    if len(x) > AT_ONCE and on_host(xp):
        return found | by_panels(net, *(a.astype(np.float64) for a in (theta0, x, y, x_test, y_test)))
    lin, theta = mn.Linearized(net, theta0), exact(net, theta0, x, y)
    found |= {"test": float(right(lin, theta, x_test, y_test).mean()), "train": float(right(lin, theta, x, y).mean())}
    lam, Q = xp.linalg.eigh(mn.ntk(net, theta0, x))
    lam, b = xp.maximum(lam, 0 * lam + 1e-12), Q.T @ (y - net(theta0, x))
    across, f0 = mn.ntk(net, theta0, x_test, x) @ Q, net(theta0, x_test)

    def score(gain: mn.Array) -> float:
        return float(xp.mean(xp.astype(y_test * (f0 + across @ (gain[:, None] * b)) > 0, x.dtype)))

    stopped = score(-xp.expm1(-sgd_time / len(x) * lam) / lam)
    return {**found, "ridge": [score(1 / (lam + ridge)) for ridge in RIDGES], "stopped": stopped}


class Tangent:
    """The tangent kernel at theta_0 with the methods that `an.solve` calls to compute it in panels."""

    def __init__(self, net: mn.Network, theta0: mn.Array) -> None:
        self.net, self.theta0 = net, theta0

    def ntk(self, x1: mn.Array, x2: mn.Array | None = None) -> mn.Array:
        """Return J(x1) J(x2)'."""
        return mn.ntk(self.net, self.theta0, x1, x2)

    nngp = ntk


def by_panels(
    net: mn.Network, theta0: mn.Array, x: mn.Array, y: mn.Array, x_test: mn.Array, y_test: mn.Array
) -> dict[str, Any]:
    """Return the accuracies of `solved`, computed in panels of J J'. The stopped flow is not computed (NaN).

    For each ridge, the outputs are f_0(x) + k(x, X) (J J' + ridge I)^-1 (y - f_0(X)).
    """
    f0, found, train = net(theta0, x_test), list[float](), list[float]()
    for ridge in RIDGES:
        fit = an.solve(Tangent(net, theta0), x, y - net(theta0, x), ridge=ridge)
        found.append(float(np.mean(y_test * (f0 + fit.predict(x_test)) > 0)))
        train.append(float(np.mean(y * (y - ridge * fit.coefficients) > 0)))
    return {"test": found[0], "train": train[0], "ridge": found, "stopped": nan}


def trained(data: str, n_train: int, shift: int, width: int, seed: int, epochs: int, lr: float) -> dict[str, Any]:
    """Return the test and training accuracies of LeNet and of its linearisation, both trained by SGD."""
    net, theta0, (x, y, x_test, y_test) = problem(data, n_train, shift, width, seed)
    found = {}
    for name, model, towards in (("LeNet", net, None), ("linearised", mn.Linearized(net, theta0), theta0)):
        sgd = mn.SGD(lr, momentum=0.9, weight_decay=5e-5, towards=towards)
        with unfinished(data, n_train, shift, width, seed, epochs, lr, name) as folder:
            run = mn.fit(model, theta0, x, y, loss=mn.sum_of_squares, epochs=epochs, batch_size=32,
                         rng=np.random.default_rng(seed), optimizer=sgd, checkpoint=folder)  # fmt: skip
        found[name] = float(right(run.model, run.theta, x_test, y_test).mean())
        found[f"{name}, train"] = float(right(run.model, run.theta, x, y).mean())
    return found


def main(
    s: Setting, widths: tuple[int, ...], shifts: tuple[int, ...] = (), n_train: int = 0, seeds: int = 3,
    epochs: int = 30, lr: float = 0.01,
) -> Found:  # fmt: skip
    """Return the accuracies and the best ridge for each shift and width, and plot the accuracies."""
    shifts = shifts or (0, 2 if s.data == "digits" else 7)
    n_train = n_train or (867 if s.data == "digits" else 1960)
    axes: dict[str, Any] = {"shift": shifts, "width": widths, "seed": range(seeds)}
    where: dict[str, Any] = {"data": s.data, "n_train": n_train}
    time = 2 * lr * (n_train // 32) * epochs / (1 - 0.9)
    by_solver = s.sweep(solved, axes, **where, sgd_time=time)
    by_sgd = s.sweep(trained, axes, **where, epochs=epochs, lr=lr)
    best = by_solver["ridge"].mean(2).argmax(-1)  # (shifts, widths)
    columns = {"solver": by_solver["test"], "stopped": by_solver["stopped"]}
    columns |= {"linearised": by_sgd["linearised"], "LeNet": by_sgd["LeNet"]}
    columns["ridge"] = np.take_along_axis(by_solver["ridge"], best[..., None, None], -1)[..., 0]
    found: Found = {"widths": widths, "shifts": shifts, "P / N": by_solver["P / N"][0, :, 0].tolist()}
    found |= {name: [[interval(v) for v in row] for row in value] for name, value in columns.items()}
    found |= {"train": by_solver["train"].mean(-1).tolist(), "best ridge": [[RIDGES[b] for b in row] for row in best]}
    table = []
    for i, shift in enumerate(shifts):
        lines = {title: found[name][i] for name, title in SAYS.items()}
        for name in ("ridge", "stopped"):
            lines[f"{SAYS[name]}, less SGD"] = [interval(v) for v in (columns[name] - columns["linearised"])[i]]
        verdicts = {
            "exact solution": (PAPER[i > 0], above([interval((columns["linearised"] - columns["solver"])[i, 0])])),
        }  # fmt: skip
        for title, values in lines.items():
            said, agrees = verdicts.get(title, ("-", None))
            here = ", ".join(f"{percent(v)} (x{w})" for v, w in zip(values, widths))
            table.append(Row(f"{title}, shifts up to {shift}: test accuracy (%)", said, here, "seeds",
                             f"{n_train} images, first class against the rest", seeds, agrees))  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(2, len(shifts), figsize=(5.5 * len(shifts), 7.5), squeeze=False, layout="constrained")
        for i, (top, low) in enumerate(panels.T):
            for name, style in zip(SAYS, ("s-", "^-", "o-", "d--", "v:")):
                mean, half, *_ = zip(*found[name][i])
                top.errorbar(widths, 100 * np.array(mean), 100 * np.array(half), fmt=style, capsize=3, label=SAYS[name])
            top.set(xscale="log", xlabel="width factor", title=f"{s.data}, shifts up to {shifts[i]} pixels")
            top.set_xticks(widths, map(str, widths)), top.minorticks_off()
            for w, width in enumerate(widths):
                low.semilogx(RIDGES, 100 * by_solver["ridge"][i, w].mean(0), "o-", color=f"C{w}", label=f"x{width}")
                low.axhline(100 * columns["linearised"][i, w].mean(), color=f"C{w}", ls="--", lw=0.8)
            low.set(xlabel="ridge; dashed: SGD", ylabel="test accuracy, %")
        panels[0, 0].set_ylabel("test accuracy, %; 95 % intervals over seeds")
        panels[0, 0].legend(fontsize=8), panels[1, 0].legend(fontsize=8)

    return finish(s, found, table, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "exact_linearised_lenet")
