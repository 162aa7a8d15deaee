"""Compare errors of the lazy and the feature regime over (alpha, h) (Geiger et al. 2020, figures 1 (a, c, d) and 2).

    python3 make.py python examples/lazy_and_feature_phase.py [--out DIR] [--data DIR] [--scale small|evening|paper]

The model is alpha (f - f_0) with a network f of width h.  The paper claims that s = sqrt(h) alpha determines the
regime, so the crossover between the regimes is at alpha* ~ h^(-1/2).  Lazy networks should predict the same outputs as
their frozen initial kernel.  Feature-learning networks should be more accurate, but only slightly for wide fully
connected networks on MNIST. In both regimes the variance of the outputs over initialisations should fall as 1/h, and
the error of averaged networks should hardly depend on h.

In the first task, y = sign(x_1 x_2) with ten normal inputs, feature learning helps.  With --data, there is a second
task, the parity of real digits, in which feature learning hardly helps.  The crossover alpha* is the alpha at which the
error is halfway between the errors of the two regimes, interpolated in log s.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, percent, placed, plus, tested
from geiger import drawn, exponent, frozen, guide, in_widths, network, start, task, trained
from verdicts import EXPONENT, POINTS, above, near, percent_of

import minintk as mn
from minintk.arrays import to_host

SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (16, 32, 64), "wide": (128, 256), "scales": (0.1, 1.0, 3.0, 10.0, 30.0), "depth": 2,
              "seeds": 5, "n_train": 200, "n_test": 1000},
    "evening": {"widths": (32, 64, 128), "wide": (256, 512), "scales": (0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0),
                "depth": 2, "seeds": 10, "n_train": 500, "n_test": 2000},
    "paper": {"widths": (100, 200, 400, 800), "wide": (), "scales": tuple(10.0 ** np.arange(-2, 4.1, 0.25)), "depth": 5,
              "seeds": 26, "n_train": 5000, "n_test": 10_000},
}  # fmt: skip


GAP = 0.05  # compute alpha* only if the errors of the regimes differ by more than this at every width


def outputs(
    n_train: int, n_test: int, depth: int, data: str, width: int, s: float, seed: tuple[int, ...]
) -> list[dict[str, Any]]:  # fmt: skip
    """Train a network for each seed, and return its outputs f (M,) on the test set.

    The value s = 0 selects the limit s = infinity, which is the flow with the frozen initial kernel.
    """
    (x, y), (x_test, _) = (placed(*part) for part in task(data, n_train, n_test))
    net = network(width, depth)
    theta0 = start(net, seed)
    if s:
        model, theta = trained(net, theta0, s, x, y)
        f = model(theta, x_test)
    else:
        f = frozen(mn.Centred(net, theta0, 1.0), theta0, x, y, x_test)
    return [{"f": values.tolist()} for values in to_host(f)[..., 0].astype(float).round(5)]


def crossing(scales: tuple[float, ...], error: Any) -> float:
    """Return the s at which the error is halfway between the first and last entries of `error`.

    error : (K + 1,) for K scales; the last entry is the error in the lazy limit.
    """
    share = np.maximum.accumulate((error - error[0]) / (error[-1] - error[0]))
    return float(np.exp(np.interp(0.5, share[:-1], np.log(scales))))


def main(
    s: Setting, widths: tuple[int, ...], wide: tuple[int, ...], scales: tuple[float, ...], depth: int, seeds: int,
    n_train: int, n_test: int,
) -> Found:  # fmt: skip
    """Return errors, variances and crossovers for each task, and plot figures 1 (a, c, d) and 2."""
    tasks = ("sparse",) if s.data == "digits" else ("sparse", s.data)
    fixed: dict[str, Any] = {"n_train": n_train, "n_test": n_test, "depth": depth}
    grid: dict[str, Any] = {"data": tasks, "width": widths, "s": (*scales, 0.0), "seed": range(seeds)}
    f = s.sweep(outputs, grid, together="seed", **fixed)["f"]  # (task, width, s, seed, test example)
    kernels = s.sweep(outputs, grid | {"width": wide, "s": [0.0]}, together="seed", **fixed) if wide else None
    names = ("error", "alpha*", "Var f", "lazy - feature", "averages, lazy - feature", "ratio", "drift", "collapse")
    found: Found = {"widths": widths, "scales": scales, "tasks": tasks} | {name: {} for name in names}
    rows, drawings = [], []
    for i, data in enumerate(tasks):
        y = task(data, n_train, n_test)[1][1][:, 0]
        wrong, average = (f[i] * y <= 0) * 1.0, (f[i].mean(-2) * y <= 0) * 1.0
        error = wrong.mean((-2, -1))  # (width, s)
        size = f"{n_train} of {data}, L = {depth}, h = {', '.join(map(str, widths))}"
        where: dict[str, Any] = {"size": size, "seeds": seeds}
        found["error"][data] = [[tested(w) for w in row] for row in wrong]
        gaps = found["lazy - feature"][data] = [tested(w[-1] - w[0]) for w in wrong]
        apart = found["averages, lazy - feature"][data] = [tested((a[-1] - a[0])[None]) for a in average]
        ratio = found["ratio"][data] = [float(a[-1].mean() / a[0].mean()) for a in average]
        drift = found["drift"][data] = [tested((average[0, k] - average[-1, k])[None]) for k in (0, -1)]
        variance = f[i].var(-2, ddof=1).mean(-1)  # (width, s)
        spread = (f[i] - f[i].mean(-2, keepdims=True)) ** 2 * seeds / (seeds - 1)
        laws = {"feature": exponent(widths, spread.mean(-1)[:, 0])}
        frozens = {h: f[i, k, -1] for k, h in enumerate(widths)}
        frozens |= {h: kernels["f"][i, k, 0] for k, h in enumerate(wide)} if kernels else {}
        squares = [((v - v.mean(0)) ** 2).mean(-1) * seeds / (seeds - 1) for v in frozens.values()]
        laws["frozen kernel"] = exponent(list(frozens), np.array(squares))
        found["Var f"][data] = laws
        rows += [
            Row(f"{data}: lazy - feature, test error (points)", "> 0, small at large h (FC, MNIST)",
                f"{', '.join(percent(g) for g in gaps)} (feature: {', '.join(f'{100 * e[0]:.1f}' for e in error)} %)",
                "both", agrees=above(gaps), why="open", **where),
            Row(f"{data}: averages of {seeds}, lazy - feature (points); lazy / feature",
                "-" if data == "sparse" else "about 0; 1.02",
                f"{', '.join(percent(g) for g in apart)}; {', '.join(f'{r:.2f}' for r in ratio)}", "images",
                agrees=percent_of(near(apart[-1:], 0, POINTS)) if data != "sparse" else None, why="open", **where),
            Row(f"{data}: the average's error, h = {widths[0]} less h = {widths[-1]}, feature and lazy (points)", "0",
                ", ".join(percent(d) for d in drift), "images",
                agrees=percent_of(near(drift, 0, POINTS)), why="open", **where),
            Row(f"{data}: Var f ~ h^b, feature; frozen initial kernel, h = {widths[0]} to {max(frozens)}: b", "-1; -1",
                "; ".join(plus(v) for v in laws.values()), "seeds",
                agrees=near(laws.values(), -1, EXPONENT), why="open", **where),
        ]  # fmt: skip
        if all(g[0] > GAP for g in gaps):
            star = np.array([crossing(scales, e) for e in error])
            each = np.array([[crossing(scales, e) for e in w.mean(-1).T] for w in wrong])  # (width, seed)
            slope = exponent(widths, each / np.sqrt(widths)[:, None])
            found["alpha*"][data] = slope, star.tolist()
            rescaled = (error - error[:, :1]) / (error[:, -1:] - error[:, :1])
            found["collapse"][data] = collapse = float(np.ptp(rescaled, axis=0).max())
            rows.append(Row(
                f"{data}: alpha* ~ h^b, where the error is half-way: b; sqrt(h) alpha*; rescaled errors over h",
                "-1/2; the same; one curve",
                f"{plus(slope)}; {', '.join(f'{v:.1f}' for v in star)}; within {collapse:.2f} of each other", "seeds",
                agrees=near([slope], -0.5, EXPONENT), why="open", **where,
            ))  # fmt: skip
        drawings.append((data, error, average.mean(-1), variance, frozens, squares))

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(len(tasks), 4, figsize=(16, 3.7 * len(tasks)), squeeze=False, layout="constrained")
        for (data, error, average, variance, frozens, squares), axes in zip(drawings, panels):
            half = np.array([[value.half for value in row] for row in found["error"][data]])
            for i, h in enumerate(widths):
                bars: dict[str, Any] = {"fmt": f"C{i}o-", "ms": 3, "capsize": 2, "label": f"h = {h}"}
                axes[0].errorbar(np.array(scales) / sqrt(h), 100 * error[i, :-1], 100 * half[i, :-1], **bars)
                axes[0].axhline(100 * error[i, -1], color=f"C{i}", ls=":", lw=0.9)
                if data in found["alpha*"]:
                    rescaled = (error[i, :-1] - error[i, 0]) / (error[i, -1] - error[i, 0])
                    axes[1].semilogx(scales, rescaled, f"C{i}o-", ms=3, label=f"h = {h}")
            for k, name, style in ((0, "feature", "C0o"), (-1, "frozen initial kernel", "C1s")):
                axes[2].errorbar(
                    widths, 100 * error[:, k], 100 * half[:, k], fmt=f"{style}-", ms=4, capsize=2, label=name
                )
                axes[2].plot(widths, 100 * average[:, k], f"{style}:", ms=4, label=f"average of {seeds}")
            axes[3].loglog(widths, variance[:, 0], "C0o-", ms=4, label="feature")
            drawn(axes[3], list(frozens), np.array(squares), "frozen initial kernel", "C1")
            guide(axes[3], list(frozens), (widths[0], variance[0, 0]), -1, "slope -1")
            axes[0].set(xscale="log", xlabel="alpha", ylabel="test error, %", title=f"{data}; dotted: alpha = infinity")
            axes[1].set(xlabel="s = sqrt(h) alpha", ylabel="rescaled error", title=f"{data}: one curve?")
            if data not in found["alpha*"]:
                axes[1].axis("off")
                axes[1].set_title(f"{data}: errors too close to rescale")
            axes[2].set(ylabel="test error, %")
            axes[3].set(ylabel="Var f over initialisations")
            in_widths(axes[2], widths)
            in_widths(axes[3], list(frozens))
            for panel in axes[[0, 2, 3]]:
                panel.legend(fontsize=7)

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "lazy_and_feature_phase")
