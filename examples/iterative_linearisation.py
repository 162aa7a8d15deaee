"""Iterative linearisation: update a network's features only every K steps, and find the rates at which it converges.

    python3 make.py python examples/iterative_linearisation.py [--out DIR] [--data DIR --set mnist|cifar10]

The script runs gradient descent on a LeNet that is linearised again every K steps (Iterative linearised training, 2022,
algorithm 1, figures 1 and 2).  With K = 1 the network itself is trained, and with K = infinity features are never
learned.  Training uses full batches.  Softmax and cross-entropy are not linearised.  According to the paper, training
with finite K reaches the accuracy of K = 1 at a low rate.  A new linearisation can lower the accuracy at first, because
the weights were trained with the old features.  At higher rates, training with K = 1 or K = infinity converges, but
training with a finite K > 1 diverges.  The module windows.py derives the plotted bounds.

Rates refer to a mean loss.  If the paper's loss is a sum over 50,000 images, its rates 1e-4 and 1e-5 are 5 and .5 here.
A run lasts for a time t = lr x steps, and for at least 3 K steps (15,000 if K = infinity).  The sizes "small" and
"evening" use 60 images and 6 channels instead of all images and 50 channels, so that J J' can be stored for a window.
"""

from __future__ import annotations

from functools import reduce
from math import ceil, inf, sqrt
from operator import and_
from typing import Any

import numpy as np
from common import Found, Measured, Row, Setting, command_line, finish, interval, percent, plus, right
from verdicts import Claim, above, near, percent_of, sure, unfinished
from windows import POINTS, TEST, CrossEntropy, along_the_path, beside_it, descend, problem

import minintk as mn

SIZES: dict[str, dict[str, Any]] = {
    "small": {"periods": (1, 2, 5, 50, 500, inf), "rates": 6},
    "evening": {"seeds": 2},
    "paper": {"n_train": 60_000, "channels": 50, "seeds": 3},
}
LOWEST = {"digits": (0.01, 30.0), "mnist": (0.003, 8.0), "cifar10": (0.003, 12.0)}
"""The lowest rate, and the time t of all runs, for each data set. At this rate, t / lr is a few thousand steps."""


@np.errstate(over="ignore", invalid="ignore")  # FloatingPointError reports divergence
def run(data: str, n_train: int, channels: int, t: float, K: float, lr: float, seed: int) -> dict[str, Any]:
    """Return the final loss and test accuracy, and the test accuracies before and after some feature updates.

    Also return the times of these updates.
    """
    net, theta, (x, y, x_test, y_test) = problem(data, n_train, channels, seed)
    steps = ceil(max(t / lr, 3 * K if inf > K else 15_000))
    windows = ceil(steps / K) if inf > K else 20
    shown = np.linspace(1, windows, POINTS).astype(int).tolist()
    found: dict[str, list[float]] = {"times": [], "before": [], "after": []}
    for i, window in enumerate(descend(net, theta, x, y, lr, K, steps), 1):
        if many := shown.count(i):
            lin = mn.Linearized(net, window.theta0)
            end: mn.Model = net if inf > K else lin
            scores = i * lr * steps / windows, *(right(m, window.theta, x_test, y_test).mean() for m in (lin, end))
            for name, value in zip(found, scores):
                found[name] += [float(value)] * many
    loss = float(CrossEntropy(end(window.theta, x), y))
    if not loss < 1e3:
        raise FloatingPointError(f"the loss ends at {loss:.3g}")
    return {"loss": loss, "test": found["after"][-1], **found}


def settled(times: Any, accuracy: Any) -> bool:
    """Return True if the mean accuracy varies by less than one percentage point over the last third of the time.

    accuracy : (seeds, POINTS). If the last third contains a single point, return False.
    """
    late = times > times[-1] * 2 / 3 * (1 + 1e-9)
    return len(set(times[late])) > 1 and bool(np.ptp(accuracy[:, late].mean(0)) < 0.01)


def main(
    s: Setting, periods: tuple[float, ...] = (1, 2, 5, 50, 500, 5000, 20_000, inf), n_train: int = 60,
    channels: int = 6, rates: int = 8, seeds: int = 1, lowest: tuple[float, float] | None = None,
) -> Found:  # fmt: skip
    """Return the pairs of K and rate at which training succeeds, their bounds, and accuracy gaps at the lowest rate."""
    low, t = lowest or LOWEST[s.data]
    where: dict[str, Any] = {"data": s.data, "n_train": n_train, "channels": channels, "t": t}
    lrs, seed, K = [low * 2**r for r in range(rates)], range(seeds), np.array(periods)
    runs = s.sweep(run, {"K": periods, "lr": lrs, "seed": seed}, **where)
    along = s.sweep(along_the_path, {"seed": seed}, **where, low=low, rates=rates)
    beside = s.sweep(beside_it, {"seed": seed}, **where, lr=2 * low)
    learns, finite = runs["loss"] < np.log(10) / 2, (K > 1) & (inf > K)  # NaN (diverged) counts as not learned
    largest = [max((lr for lr, ok in zip(lrs, each) if ok.all()), default=0.0) for each in learns]
    peak, first = along["curvature"].max(-1), along["curvature"][:, 0]
    net, theta0, _ = problem(s.data, n_train, channels, 0)
    reach = np.array([mn.IterativelyLinearized(net, theta0, k).reach for k in periods])
    inside = ((K[:, None, None] <= along["longest"].T) & (np.outer(lrs, peak) < reach[:, None, None]))[finite]
    gaps = [interval(end) for end in runs["test"][0, 0] - runs["before"][:, 0, :, -1]]
    ends = runs["times"][:, 0, 0]
    done = np.array([settled(*each) for each in zip(ends, runs["before"][:, 0])]) & (abs(ends[:, -1] / t - 1) < 0.05)
    drops = [interval(d) for d in (runs["before"] - runs["after"])[:, 0, :, 0]]
    better, n = interval(beside["adaptive"] - beside["fixed"]), beside["adaptive, linearised"].mean()
    names = ["∞" if inf == k else f"{k:g}" for k in periods]
    size = f"{n_train} images, " + ("reduced LeNet" if s.data == "digits" else f"LeNet, {channels} channels")

    stays, (good, bad) = learns[finite, 0].all(-1), (learns[finite][w] for w in (inside, ~inside))
    bounds = f"{good.sum()} of {good.size} runs inside the bounds on the path learn, {bad.sum()} of {bad.size} outside"
    widest = 2 * sqrt(0.5 / TEST)  # two standard errors of the difference between two accuracies

    def row(claim: str, paper: str, here: str, agrees: Claim | None = None, why: str = "") -> Row:
        return Row(claim, paper, here, "seeds" if seeds > 1 else "", size, seeds, agrees, why)

    def known(gap: Measured) -> Measured:
        return gap if seeds > 1 else gap._replace(half=widest, df=TEST - 1)

    def reached(compared: Any, left: Any, margin: float) -> Claim:
        those = [known(gap) for gap, c in zip(gaps, compared) if c]
        claims = [percent_of(near(those, 0, margin))] if those else []
        if any(left):
            which = ", ".join(n for n, c in zip(names, left) if c)
            claims.append(unfinished(f"no verdict on K = {which}: not converged, or at another time"))
        return reduce(and_, claims)

    rows = [
        row("largest rate that learns: K = 1 and ∞ beyond all others", "K = 1 beyond K > 5 (CIFAR-10)",
            ", ".join(f"{r:g} (K = {n})" for r, n in zip(largest, names)),
            sure(min(largest[0], largest[-1]) > max(r for r, f in zip(largest, finite) if f), "> all others")),
        row(f"finite K that learn at the lowest rate, {low:g}", "all, to 20,000 (CIFAR-10, 1e-5)",
            f"{stays.sum()} of {stays.size}", sure(stays.all(), "all"), bounds),
        row("runs at K > 1 that learn: inside the bounds on the path; outside", "-",
            f"{good.sum()} of {good.size}; {bad.sum()} of {bad.size}"),
        row("2 / largest curvature on the path; at the start", "-",
            f"{plus(interval(2 / peak), 4)}; {plus(interval(2 / first), 2)}"),
        row(f"gradient descent - finite K at the end, rate {low:g}, t = {t:g} (points)", "within 0.4 (MNIST)",
            ", ".join(f"{percent(g)} (K = {n})" for g, n, f in zip(gaps, names, finite) if f),
            reached(finite & done, finite & ~done, 0.004), "open"),
        row(f"gradient descent - K = ∞, rate {low:g} (points)", "visibly below", percent(gaps[-1]),
            above([known(gaps[-1])]) if done[0] and done[-1] else unfinished("not converged"), "open"),
        *(row(f"drop at the first renewal, K = {n}, rate {low:g} (points)", "-", percent(d))
          for n, k, d in zip(names, periods, drops) if 50 < k < inf),
        row(f"adaptive - fixed K, {n:.0f} linearisations: mean over training (points)", "-", percent(better)),
        row(f"SGD, batches of 10, rate {2 * low:g}: test accuracy (%); gradient descent's", "-",
            f"{percent(interval(beside['sgd']))}; {percent(interval(runs['test'][0, 1]))}"),
    ]  # fmt: skip

    def draw(plt: Any) -> None:
        _, (left, middle) = plt.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
        place = [min(k, 4 * max(k for k in periods if k < inf)) for k in periods]
        for (i, r), share in np.ndenumerate(learns.mean(-1)):
            how: Any = {"marker": "x", "color": "C3"}
            if not runs.diverged[i, r].any():
                how = {"color": str(1 - share), "edgecolor": "k"}
            left.scatter(place[i], lrs[r], s=60, **how)
        left.plot(np.maximum(along["longest"].min(0), 0.5), lrs, "C0-", label="longest window that lowers the loss")
        left.plot(K[finite], reach[finite] / peak.mean(), "C1--", label="reach / largest curvature on the path")
        left.set(
            xscale="log",
            yscale="log",
            xlabel="K; black: learns, white: does not, x: diverges",
            ylabel="learning rate lr",
            title=s.data,
        )
        left.set_xticks(place, names)
        for i in range(len(periods)):
            both = np.stack([runs[which][i, 0].mean(0) for which in ("before", "after")], axis=1)
            middle.plot(
                runs["times"][i, 0, 0].repeat(2),
                100 * both.ravel(),
                "--" if inf == K[i] else "-",
                lw=1,
                label=f"K = {names[i]}",
            )
        end = 100 * float(runs["test"][0, 0].mean())
        middle.axhspan(end - 0.4, end + 0.4, color="k", alpha=0.15, lw=0, label="K = 1 at the end ± the paper's 0.4")
        middle.set(xscale="log", xlabel=f"t = lr x steps, rate {low:g}", ylabel="test accuracy, %", title=size)
        left.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14)), middle.legend(fontsize=8)

    found = {"periods": names, "rates": lrs, "learns": learns.mean(-1).tolist(), "largest": largest, "gaps": gaps}
    found |= {"inside": [int(learns[finite][inside].sum()), int(inside.sum())], "drops": drops, "adaptive": better}
    return finish(s, found | {name: along[name].tolist() for name in ("curvature", "longest")}, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "iterative_linearisation")
