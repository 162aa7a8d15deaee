"""Draw the figures of chapter 2: random functions, excess kurtosis and fluctuations of tangent kernels."""

from __future__ import annotations

import numpy as np
from common import COLOURS, Host, bars, line, panels, save

import analytic as an
import minintk as mn


def relu(n: int, depth: int = 1) -> mn.Sequential:
    """Return the spec of a ReLU network with w_std^2 = 2 in hidden layers, so that E f^2 = 1 at x = 1 and any depth."""
    hidden = [layer for _ in range(depth) for layer in (mn.Dense(n, w_std=2**0.5), mn.ReLU())]
    return mn.Sequential(*hidden, mn.Dense(1))


def functions() -> None:
    """Draw four networks at each of the widths 4 and 4096 for inputs on a circle, and the Gaussian process's band."""
    angles = np.linspace(0, 2 * np.pi, 181)
    x = np.sqrt(2) * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    figure, axes = panels(2)
    for axis, n in zip(axes, (4, 4096), strict=True):
        spec = mn.Sequential(mn.Dense(n, w_std=1.5, b_std=0.5), mn.Erf(), mn.Dense(1))
        net = mn.Network(spec, (2,))
        deviation = np.sqrt(np.diag(an.kernel(spec).nngp(x)))
        axis.fill_between(angles, -2 * deviation, 2 * deviation, color="0.88", label=r"$\pm 2\sqrt{K(x, x)}$")
        f = np.asarray(net(net.init(np.random.default_rng(6), ensemble=4), x))[..., 0]
        for s, one in enumerate(f):
            axis.plot(angles, one, lw=1.2, color=COLOURS[s], label="four networks" if s == 0 else None)
        axis.set(title=f"width $n = {n}$", xlabel="angle of the input (radians)", ylim=(-3, 3))
    axes[0].set_ylabel("output $f(x)$")
    axes[0].legend(loc="lower left")
    save(figure, "random-functions")


def kurtosis(widths: tuple[int, ...] = (2, 4, 8, 16, 32, 64), draws: int = 400_000) -> None:
    """Draw the excess kurtosis of the output of ReLU networks with one hidden layer, and 15/n, against the width n."""
    x, rng, found = np.ones((1, 1)), np.random.default_rng(3), []
    for n in widths:
        net, groups = mn.Network(relu(n), (1,)), []
        for _ in range(20):
            f = np.asarray(net(net.init(rng, ensemble=draws // 20), x)).ravel()
            groups.append(np.mean(f**4) - 3.0)  # unbiased, because E f^2 = 1 exactly and needs no estimate
        found.append(groups)
    values = np.array(found)
    figure, (axes,) = panels(1, 4.4)
    bars(axes, widths, values, 0, f"{draws:,} networks, mean ± s.e.")
    line(axes, widths, 15 / np.array(widths), "$15/n$")
    axes.set(xlabel="width $n$", ylabel="excess kurtosis of $f(x)$", xscale="log", yscale="log")
    axes.legend()
    save(figure, "kurtosis")
    z = (values.mean(1) - 15 / np.array(widths)) / (values.std(1, ddof=1) / np.sqrt(20))
    print("excess kurtosis times n:", ", ".join(f"{v:.2f}" for v in values.mean(1) * widths), "; z of 15/n:", end=" ")
    print(", ".join(f"{one:+.1f}" for one in z))


def kernels(widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512), seeds: int = 2000) -> None:
    """Draw the relative rms deviation of Theta(x, x) from its limit, for 1 and 3 hidden layers, and sqrt(3/n)."""
    x, rng = np.ones((1, 1)), np.random.default_rng(4)
    figure, (axes,) = panels(1, 4.4)
    for at, depth in enumerate((1, 3)):
        limit = float(an.kernel(relu(8, depth)).ntk(x)[0, 0])
        off: list[Host] = []
        for n in widths:
            net = mn.Network(relu(n, depth), (1,))
            many, groups = (50, 2 * seeds // 50) if depth == 1 else (10, seeds // 20)
            found = [np.asarray(mn.ntk(net, net.init(rng, ensemble=many), x)) for _ in range(groups)]
            off.append(np.concatenate(found)[:, 0, 0] / limit - 1)
        rms = np.array([np.sqrt(np.mean(one**2)) for one in off])
        error = np.array([np.std(one**2, ddof=1) / np.sqrt(len(one)) for one in off]) / (2 * rms)
        axes.errorbar(widths, rms, error, fmt="os"[at], ms=4, color=COLOURS[at], label=f"{depth} hidden layers")
        slope, where = np.polyfit(np.log(widths), np.log(rms), 1, cov=True)
        print(f"depth {depth}: n Var = {', '.join(f'{v:.2f}' for v in rms**2 * widths)}", end="; ")
        print(f"exponent {slope[0]:.2f} ± {np.sqrt(where[0, 0]):.2f}")
    line(axes, widths, np.sqrt(3 / np.array(widths)), r"$\sqrt{3/n}$, exact for one layer")
    axes.set(xlabel="width $n$", ylabel=r"rms of $\hat\Theta(x, x)/\Theta(x, x) - 1$", xscale="log", yscale="log")
    axes.legend()
    save(figure, "kernel-fluctuations")


def main() -> None:
    """Draw the chapter's figures."""
    functions()
    kurtosis()
    kernels()
