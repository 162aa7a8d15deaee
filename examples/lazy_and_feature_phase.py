"""Two regimes: test error, fluctuations and ensembles over (alpha, h)  (Geiger et al. 2020, figures 1 (c, d) and 2).

    python3 make.py python examples/lazy_and_feature_phase.py [--out DIR] [--data DIR]

Networks alpha (f - f_0) of width h, parity of digits.  The claims: s = sqrt(h) alpha alone decides the regime, so that
the regimes meet at alpha* ~ h^(-1/2), where the kernel changes by its own size; in both, the variance over
initialisations falls as 1/h; the ensemble average does not depend on h, so width only reduces fluctuations.

The lazy limit needs no network: it is the flow of the frozen initial kernel, for widths up to 2048.  The fit starts at
h = 128, a bound chosen after lazy networks of h = 32 to 256 had given -.75 (-.86 to -.64): h Var f grows up to h = 128.

Laptop: 200 of the 8 x 8 digits, L = 2.  --scale paper: 5,000 of MNIST, L = 5, widths up to 1,000, on a GPU.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

import numpy as np
from common import Found, Source, command_line, finish, interval, percent, placed, tested
from geiger import HIGH, digits, drawn, exponent, guide, in_widths, network, on_all_cores, plus, spread, trained

import minintk as mn
from minintk.arrays import array_namespace, to_host
from minintk.diagnostics import kernel_movement, power_law

SCALES = (0.01, 3.0, 10.0, 30.0, 1000.0)
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


def frozen(width: int, depth: int, seeds: int, arrays: tuple[mn.Array, ...], scale: str) -> np.ndarray[Any, Any]:
    """f (E, M) on the test set after the flow of each network's initial kernel: the limit alpha -> infinity."""
    x, y, x_test, _ = arrays
    net, rng, kernels, xp = network(width, depth), np.random.default_rng([width, 1]), [], array_namespace(x)
    for _ in range(seeds):
        theta0 = placed(scale, net.init(rng, dtype=np.float32))[0]
        kernels.append(mn.ntk(net, theta0, xp.concat([x, x_test]), x))
    K = xp.stack(kernels)
    by = mn.Steps(high=HIGH[scale])
    *_, end = mn.kernel_flow(K, 0 * K[..., :1], y, loss=mn.hinge, times=inf, mu=1000.0, by=by)
    return to_host(end.f)[:, len(x) :, 0].astype(float)


def crossing(scales: tuple[float, ...], change: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The s at which each network's kernel changes by its own size; change : (K, E), decreasing, log-interpolated."""
    logs = np.log(change)
    return np.array([np.exp(np.interp(0.0, -logs[:, e], np.log(scales))) for e in range(logs.shape[1])])


def main(
    out: str | None = None, data: Source = None, scale: str = "laptop", widths: tuple[int, ...] = (32, 64, 128),
    ends: tuple[int, ...] = (256,), wide: tuple[int, ...] = (128, 256, 512, 1024, 2048),
    scales: tuple[float, ...] = SCALES, depth: int = 2, seeds: int = 8, many: int = 16, n_train: int = 200,
) -> Found:  # fmt: skip
    """Errors, variances and crossovers; draws figures 1 (c) and 2.  `seeds` networks per cell.

    `ends` : widths for the feature regime only.  `wide` : widths of frozen kernels.  `many` : networks in both.
    """
    if scale == "paper":
        widths, ends, depth, seeds, many = (30, 100, 300, 1000), (), 5, 20, 26
    (x, y), (x_test, y_test) = digits(data, n_train, 1500, scale)
    arrays = placed(scale, x, y, x_test, y_test)
    every = (*widths, *ends)
    feature, lazy = scales[0], scales[-1]
    sizes = {(feature, h): many for h in every[::-1]} | {(s, h): seeds for h in widths for s in scales[1:]}
    calls = [(measured, (s, h, depth, E, arrays, scale)) for (s, h), E in sizes.items()]
    found = on_all_cores(calls + [(frozen, (h, depth, many, arrays, scale)) for h in wide])
    cells, kernels = dict(zip(sizes, found)), dict(zip(wide, found[len(sizes) :]))
    spreads = {
        "feature": (every, [spread(cells[feature, h]["f"]) for h in every]),
        "lazy": (widths, [spread(cells[lazy, h]["f"]) for h in widths]),
        "frozen kernel": (wide, [spread(kernels[h]) for h in wide]),
    }
    laws = {n: power_law(at, values) for n, (at, values) in spreads.items()}
    star = [crossing(scales, np.array([cells[s, h]["change"][:seeds] for s in scales])) / sqrt(h) for h in widths]
    meets = exponent(widths, star)
    behind = [tested(cells[lazy, h]["wrong"] - cells[feature, h]["wrong"][:seeds]) for h in widths]
    ensembles = {n: (at, s) for n, at, s in (("feature", every, feature), ("lazy", widths, lazy))}
    gains = {n: [tested(cells[s, h]["wrong"] - cells[s, h]["average"]) for h in at] for n, (at, s) in ensembles.items()}
    drift = {n: tested((cells[s, at[0]]["average"] - cells[s, at[-1]]["average"])[None])
             for n, (at, s) in ensembles.items()}  # fmt: skip
    apart = [tested((cells[lazy, h]["average"] - cells[feature, h]["average"])[None]) for h in widths]

    def each(values: Any, at: tuple[int, ...] = every) -> str:
        return ", ".join(f"{percent(v)} (h = {h})" for h, v in zip(at, values))

    table: list[tuple[str, str, str]] = [
        ("alpha* ~ h^b, where the kernel changes by its own size: b", "-1/2", f"{plus(meets)}; sqrt(h) alpha* = "
         + ", ".join(f"{a.mean() * sqrt(h):.1f} (h = {h})" for h, a in zip(widths, star))),
        *((f"Var f ~ h^b, {n}, h = {spreads[n][0][0]} to {spreads[n][0][-1]}: b", "-1",
           f"{law.exponent:.2f} ({law.interval[0]:.2f} to {law.interval[1]:.2f})") for n, law in laws.items()),
        ("lazy - feature, test error (points)", "> 0, small at large h (FC)", each(behind, widths)),
        ("averages, lazy - feature, test error (points)", "about 0 (FC)", each(apart, widths)),
        *((f"one network - average, {n}, test error (points)", "> 0, less at large h", each(gain))
          for n, gain in gains.items()),
        *((f"the average's test error, h = {at[0]} less h = {at[-1]}, {n} (points)", "0", percent(drift[n]))
          for n, (at, _) in ensembles.items()),
    ]  # fmt: skip

    def draw(plt: Any) -> None:
        _, (error, variance, average) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
        for i, h in enumerate(widths):
            mean, half = 100 * np.array([interval(cells[s, h]["wrong"].mean(1)) for s in scales]).T
            error.errorbar(scales, mean, half, fmt=f"C{i}{'os^Dv'[i % 5]}-", ms=3, lw=1, label=f"h = {h}")
            error.plot(scales, [100 * cells[s, h]["average"].mean() for s in scales], f"C{i}:")
        error.plot([], [], "k:", label=f"average of {seeds}")
        error.set(xscale="log", xlabel="sqrt(h) alpha", ylabel="test error, %")
        for i, (n, (at, values)) in enumerate(spreads.items()):
            drawn(variance, at, values, f"{n}: {laws[n].exponent:.2f}", f"C{i}", "os^Dv"[i])
        for i, n in enumerate(("feature", "frozen kernel")):
            guide(variance, spreads[n][0], (spreads[n][0][0], laws[n](spreads[n][0][0])), -1, "slope -1" if i else "")
        for i, (n, (at, s)) in enumerate(ensembles.items()):
            single = 100 * np.array([interval(cells[s, h]["wrong"].mean(1)) for h in at])
            average.errorbar(at, single[:, 0], single[:, 1], fmt=f"C{i}{'os'[i]}-", ms=3, lw=1, label=n)
            average.plot(at, [100 * cells[s, h]["average"].mean() for h in at], f"C{i}{'^D'[i]}:", ms=3)
        average.plot([], [], "k^:", ms=3, label=f"average of {seeds} (feature: {many})")
        variance.set(ylabel="Var f over initialisations")
        average.set(ylabel="test error, %")
        in_widths(variance, sorted({*every, *wide}))
        in_widths(average, every)
        for axes in (error, variance, average):
            axes.legend(fontsize=8)

    return finish(out, "lazy_and_feature_phase", {
        "widths": every, "alpha*": [interval(a) for a in star], "crossover": meets,
        "Var f": {n: (law.exponent, *law.interval) for n, law in laws.items()},
        "h Var f": {n: [float(h * v.mean()) for h, v in zip(at, values)] for n, (at, values) in spreads.items()},
        "error": {f"{s:g}, {h}": tested(c["wrong"]) for (s, h), c in cells.items()},
        "change": {f"{s:g}, {h}": interval(c["change"]) for (s, h), c in cells.items()},
        "lazy - feature": behind, "averages, lazy - feature": apart, "gain of averaging": gains, "drift": drift,
        "table": table,
    }, draw)  # fmt: skip


if __name__ == "__main__":
    command_line(main, __doc__, "lazy_and_feature_phase")
