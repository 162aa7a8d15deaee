"""Draw the figures of chapter 6: features in three scalings, spectral norms, and transfer of learning rates."""

from __future__ import annotations

import warnings

import numpy as np
from common import COLOURS, MARKERS, Host, bars, line, panels, save

import minintk as mn
from minintk.diagnostics import power_law, spectral_norms

WIDTHS, SEEDS, LR = (64, 128, 256, 512, 1024), 12, 0.5

# {scaling: (powers of n that multiply n^-1/2 for hidden and output weights, powers of n that multiply lr)}
TABLES = {"NTK": ((0, 0), (0, 0, 0)), "means": ((-0.5, -0.5), (1, 2, 1)), "muP": ((0, -0.5), (1, 1, 1))}


def network(n: int, table: str, outputs: int = 1) -> tuple[mn.Network, dict[str, float]]:
    """Return a network with two hidden layers of n tanh units, and the learning-rate factor of each weight matrix."""
    (hidden, output), rates = TABLES[table]
    layers = mn.Dense(n), mn.Tanh(), mn.Dense(n, w_std=n**hidden), mn.Tanh(), mn.Dense(outputs, w_std=n**output)
    net = mn.Network(mn.Sequential(*layers), (64,))
    return net, {tensor.name: float(n) ** r for tensor, r in zip(net.layout.tensors, rates, strict=True)}


def start(net: mn.Network, n: int) -> Host:
    """Sample the initial theta of SEEDS networks, with output weights divided by ten to make initial outputs small."""
    theta0 = net.init(np.random.default_rng(n), ensemble=SEEDS)
    output = net.layout.unpack(theta0)["4.W"]
    output *= 0.1
    return theta0


def task(N: int = 32) -> tuple[Host, Host]:
    """Return N digits on the sphere |x|^2 = d, and their labels: +1 for even and -1 for odd digits."""
    return mn.datasets.digits().on_sphere().subset(N, np.random.default_rng(0)).flat().parity()


def features() -> None:
    """Draw the rms of the second hidden layer h2 at the start, and of its change in ten steps, against the width."""
    x, y = task()
    figure, (first, change) = panels(2)
    for at, table in enumerate(TABLES):
        sizes: list[list[Host]] = [[], []]
        for n in WIDTHS:
            net, scales = network(n, table)
            theta0 = start(net, n)
            *_, end = mn.train(
                net, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(LR), steps=10, every=10, lr_scales=scales
            )
            before, after = (np.asarray(net.layer_outputs(theta, x)[2]) for theta in (theta0, end.theta))
            for kept, h in zip(sizes, (before, after - before), strict=True):
                kept.append(np.sqrt(np.mean(h**2, axis=(-2, -1))))
        for axes, kept, what in zip((first, change), sizes, ("start", "change"), strict=True):
            fit = power_law(WIDTHS, kept)
            bars(axes, WIDTHS, np.array(kept), at, f"{table}: $n^{{{fit.exponent:.2f}}}$")
            print(f"{table}, h2, {what}: exponent {fit.exponent:.2f} ({fit.interval[0]:.2f} to {fit.interval[1]:.2f})")
    for axes, title, anchor in ((first, "at the start", 0.12), (change, "change in 10 steps", 0.0065)):
        axes.set(xlabel="width $n$", xscale="log", yscale="log", title=title)
        line(axes, WIDTHS, anchor * (np.array(WIDTHS) / 64.0) ** -0.5, "slope $-1/2$")
        low, high = axes.get_ylim()
        axes.set_ylim(low / 4, high * 1.3)
        axes.legend(loc="lower left", ncols=2)
    first.set_ylabel("rms of second hidden layer, $h_2$")
    save(figure, "three-tables")


def first_layer() -> None:
    """Print the exponent in n of the change of the first layer h1 after 1, 10 and 30 steps, in the scaling "means"."""
    x, y = task()
    for steps in (1, 10, 30):
        moved = []
        for n in WIDTHS:
            net, scales = network(n, "means")
            theta0 = start(net, n)
            *_, end = mn.train(
                net, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(LR), steps=steps, every=steps, lr_scales=scales
            )
            before, after = (np.asarray(net.layer_outputs(theta, x)[0]) for theta in (theta0, end.theta))
            moved.append(np.sqrt(np.mean((after - before) ** 2, axis=(-2, -1))))
        fit = power_law(WIDTHS, moved)
        low, high = fit.interval
        print(f"means, h1, change in {steps} steps: exponent {fit.exponent:.2f} ({low:.2f} to {high:.2f})")


def norms() -> None:
    """Draw the spectral norms of W and of its first change, relative to sqrt(fan_out / fan_in), in two scalings."""
    x, y = task()
    figure, axes = panels(2)
    for axis, table in zip(axes, ("NTK", "muP"), strict=True):
        found: dict[str, list[tuple[float, float]]] = {"0.W": [], "2.W": [], "4.W": []}
        for n in WIDTHS:
            net, scales = network(n, table)
            theta0 = start(net, n)
            *_, end = mn.train(net, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(LR), steps=1, lr_scales=scales)
            effective = {"0.W": (64, n), "2.W": (n, n), "4.W": (n, 1)}
            before, moved = spectral_norms(net, theta0), spectral_norms(net, end.theta - theta0)
            for name, (i, o) in effective.items():
                unit = np.sqrt(o / i)
                found[name].append((float(np.mean(before[name])) / unit, float(np.mean(moved[name])) / unit))
        for at, values in enumerate(found.values()):
            label = ("input", "hidden", "output")[at]
            for kind, column, filled in (("W", 0, "none"), (r"\Delta W", 1, COLOURS[at])):
                v = [pair[column] for pair in values]
                b = np.polyfit(np.log(WIDTHS), np.log(v), 1)[0]
                text = f"{label}, $|{kind}|$: $n^{{{b:.2f}}}$"
                axis.loglog(WIDTHS, v, MARKERS[at] + "-", ms=4, lw=0.7, color=COLOURS[at], mfc=filled, label=text)
                print(f"{table}, {label}, |{kind}| over its unit: exponent {b:.2f}")
        axis.set(xlabel="width $n$", title=table, ylim=(5e-5, 1e3))
        axis.legend(ncols=2, loc="upper center", fontsize=6.5)
    axes[0].set_ylabel(r"spectral norm / $\sqrt{n_{\rm out}/n_{\rm in}}$")
    save(figure, "spectral-norms")


def transfer(widths: tuple[int, ...] = (64, 256, 1024)) -> None:
    """Draw the loss after 20 steps against the learning rate at three widths, in three parametrizations."""
    x, y = mn.datasets.digits(dtype=np.float32).on_sphere().subset(32, np.random.default_rng(0)).flat().one_hot()
    figure, axes = panels(3, 2.6)
    for axis, (name, parametrization, rates) in zip(axes, (
        ("standard", mn.Standard(), 2.0 ** np.arange(-9, 1.1)),
        ("NTK", mn.NTK(), 2.0 ** np.arange(-3, 6.1)),
        ("muP", mn.SpectralMuP(), 2.0 ** np.arange(-5, 5.1)),
    ), strict=True):  # fmt: skip
        for at, n in enumerate(widths):
            layers = mn.Dense(n), mn.Tanh(), mn.Dense(n), mn.Tanh(), mn.Dense(10)
            net = mn.Network(mn.Sequential(*layers), (64,), parametrization)
            theta0 = net.init(np.random.default_rng(n), ensemble=3, dtype=np.float32)
            output = net.layout.unpack(theta0)["4.W"]
            output *= 0.1
            losses, moved = [], []
            for lr in rates:
                try:
                    with warnings.catch_warnings(), np.errstate(all="ignore"):
                        warnings.simplefilter("ignore")  # the figure includes rates at which training diverges
                        *_, end = mn.train(
                            net, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(float(lr)), steps=20, every=20
                        )
                    before, after = (np.asarray(net.layer_outputs(theta, x)[2]) for theta in (theta0, end.theta))
                    losses.append(float(np.exp(np.mean(np.log(end.loss)))))
                    moved.append(float(np.sqrt(np.mean((after - before) ** 2))))
                except FloatingPointError:
                    losses.append(np.nan)
                    moved.append(np.nan)
            best, limit = (
                int(np.nanargmin(losses)),
                2 * len(x) / np.linalg.eigvalsh(np.asarray(mn.ntk(net, theta0, x)))[:, -1],
            )
            print(f"{name}, width {n}: best rate {rates[best]:g}; h2 moves by {moved[best]:.3f}", end="")
            print(f", at half the rate by {moved[best - 1]:.3f}; 2N/lambda_max {limit.min():.3g} to {limit.max():.3g}")
            axis.loglog(rates, losses, MARKERS[at] + "-", ms=4, lw=0.9, color=COLOURS[at], label=f"width {n}")
        axis.set(xlabel="learning rate", title=name, ylim=(1e-3, 3))
        axis.legend(loc="lower left")
    axes[0].set_ylabel("loss after 20 steps")
    save(figure, "transfer")


def main() -> None:
    """Draw the chapter's figures."""
    features()
    first_layer()
    norms()
    transfer()
