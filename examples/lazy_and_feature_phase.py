"""Two regimes: test error, fluctuations and ensembles over (alpha, h)  (Geiger et al. 2020, figures 1 (c, d) and 2).

    python3 make.py python examples/lazy_and_feature_phase.py [--out DIR] [--data DIR]

Networks alpha (f - f_0) of width h, parity of digits.  The claims: s = sqrt(h) alpha alone decides the regime, so that
they meet at alpha* ~ h^(-1/2), where the kernel changes by its own size; in both, the variance over initialisations
falls as 1/h; the average over an ensemble does not depend on h, so that fluctuations are all that width removes.

Laptop: the 8 x 8 digits, 200 of them, L = 2.  --scale paper: 5,000 of MNIST, L = 5, widths up to 1,000, on a GPU.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from common import Found, Source, command_line, finish, interval, percent, placed, tested
from geiger import HIGH, digits, drawn, exponent, guide, network, plus, trained

import minintk as mn
from minintk.arrays import to_host
from minintk.diagnostics import kernel_movement, power_law

SCALES = (0.01, 0.1, 3.0, 10.0, 30.0, 1000.0)
"""s = sqrt(h) alpha; the first is the feature regime, the last the lazy one."""


def measured(
    s: float, width: int, depth: int, seeds: int, arrays: tuple[mn.Array, ...], scale: str
) -> dict[str, np.ndarray[Any, Any]]:
    """One cell: f (E, M) on the test set, wrong (E, M), the ensemble average's wrong (M,), the kernel's change (E,)."""
    x, y, x_test, y_test = arrays
    net = network(width, depth)
    theta0 = placed(scale, net.init(np.random.default_rng(width), ensemble=seeds, dtype=np.float32))[0]
    run = trained(net, theta0, s / sqrt(width), x, y, high=HIGH[scale])
    f, sign = to_host(run.model(run.theta, x_test))[..., 0].astype(float), to_host(y_test)[:, 0]
    change = to_host(kernel_movement(net, theta0, run.theta, x_test[:100])).astype(float)
    return {"f": f, "wrong": (f * sign <= 0) * 1.0, "average": (f.mean(0) * sign <= 0) * 1.0, "change": change}


def spread(f: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Each network's part of Var f, (E,): their mean is the unbiased variance, eq. (7)."""
    return np.asarray(len(f) / (len(f) - 1) * ((f - f.mean(0)) ** 2).mean(1))


def crossing(scales: tuple[float, ...], change: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The s at which each network's kernel changes by its own size; change : (K, E), falling, linear in logs."""
    logs = np.log(change)
    return np.array([np.exp(np.interp(0.0, -logs[:, e], np.log(scales))) for e in range(logs.shape[1])])


def main(
    out: str | None = None, data: Source = None, scale: str = "laptop", widths: tuple[int, ...] = (32, 64, 128),
    ends: tuple[int, ...] = (256,), scales: tuple[float, ...] = SCALES, depth: int = 2, seeds: int = 10,
    n_train: int = 200,
) -> Found:  # fmt: skip
    """Errors, variances and crossovers; `ends`: widths of the two outermost scales only.  Draws figures 1 (c) and 2."""
    if scale == "paper":
        widths, ends, depth, seeds = (30, 100, 300, 1000), (), 5, 20
    (x, y), (x_test, y_test) = digits(data, n_train, 1500, scale)
    arrays = placed(scale, x, y, x_test, y_test)
    every = (*widths, *ends)
    cells = {
        (s, h): measured(s, h, depth, seeds, arrays, scale)
        for h in every for s in (scales if h in widths else (scales[0], scales[-1]))
    }  # fmt: skip
    names = {"feature": scales[0], "lazy": scales[-1]}
    laws = {n: power_law(every, [spread(cells[s, h]["f"]) for h in every]) for n, s in names.items()}
    star = [crossing(scales, np.array([cells[s, h]["change"] for s in scales])) / sqrt(h) for h in widths]
    meets = exponent(widths, star)
    behind = {h: tested(cells[names["lazy"], h]["wrong"] - cells[names["feature"], h]["wrong"]) for h in every}
    gains = {n: [tested(cells[s, h]["wrong"] - cells[s, h]["average"]) for h in every] for n, s in names.items()}
    drift = {
        n: tested((cells[s, every[0]]["average"] - cells[s, every[-1]]["average"])[None]) for n, s in names.items()
    }

    def each(values: Any) -> str:
        return ", ".join(f"{percent(v)} (h = {h})" for h, v in zip(every, values))

    table: list[tuple[str, str, str]] = [
        ("alpha* ~ h^b, where the kernel changes by its own size: b", "-1/2", plus(meets)),
        *((f"Var f ~ h^b, {n} regime: b", "-1", f"{law.exponent:.2f} ({law.interval[0]:.2f} to {law.interval[1]:.2f})")
          for n, law in laws.items()),
        ("lazy - feature, test error (points)", "> 0, small at large h (FC)", each(behind.values())),
        *((f"one network - average of {seeds}, {n}, test error (points)", "> 0, less at large h", each(gain))
          for n, gain in gains.items()),
        *((f"the average's test error, h = {every[0]} less h = {every[-1]}, {n} (points)", "0", percent(d))
          for n, d in drift.items()),
    ]  # fmt: skip

    def draw(plt: Any) -> None:
        _, (error, variance, average) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
        for i, h in enumerate(widths):
            mean, half = 100 * np.array([interval(cells[s, h]["wrong"].mean(1)) for s in scales]).T
            error.errorbar(scales, mean, half, fmt=f"C{i}o-", capsize=2, ms=3, lw=1, label=f"h = {h}")
            error.plot(scales, [100 * cells[s, h]["average"].mean() for s in scales], f"C{i}:")
        error.plot([], [], "k:", label=f"average of {seeds}")
        error.set(xscale="log", xlabel="sqrt(h) alpha", ylabel="test error, %")
        for i, (n, s) in enumerate(names.items()):
            values = [spread(cells[s, h]["f"]) for h in every]
            drawn(variance, every, values, f"{n}: {laws[n].exponent:.2f}", f"C{i}", "o")
            guide(variance, every, (every[0], float(values[0].mean())), -1, "slope -1" if i else "")
            single = 100 * np.array([interval(cells[s, h]["wrong"].mean(1)) for h in every])
            average.errorbar(every, single[:, 0], single[:, 1], fmt=f"C{i}o-", capsize=2, ms=3, lw=1, label=n)
            average.plot(every, [100 * cells[s, h]["average"].mean() for h in every], f"C{i}s:", ms=3)
        average.plot([], [], "ks:", ms=3, label=f"average of {seeds}")
        variance.set(xlabel="width h", ylabel="Var f over initialisations")
        average.set(xscale="log", xlabel="width h", ylabel="test error, %")
        for axes in (error, variance, average):
            axes.legend(fontsize=8)

    return finish(out, "lazy_and_feature_phase", {
        "widths": every, "alpha*": [interval(a) for a in star], "crossover": meets,
        "Var f": {n: (law.exponent, *law.interval) for n, law in laws.items()},
        "error": {f"{s:g}, {h}": tested(c["wrong"]) for (s, h), c in cells.items()},
        "error of the average": {f"{s:g}, {h}": float(c["average"].mean()) for (s, h), c in cells.items()},
        "lazy - feature": list(behind.values()), "gain of averaging": gains, "drift": drift, "table": table,
    }, draw)  # fmt: skip


if __name__ == "__main__":
    command_line(main, __doc__, "lazy_and_feature_phase")
