"""Measure the errors of truncated kernel hierarchies: O(1/n) with Theta or O3 frozen, O(1/n^2) with O4 frozen.

    python3 make.py python examples/kernel_hierarchy.py [--scale small|evening] [--out FILE.png]

Networks with two hidden layers of width n learn eight examples by gradient flow until t = 2.  The targets are
f(theta_0) + 1 and f(theta_0) - 1, so that all networks start with the same residual.  `mn.hierarchy` of order 2 (Theta
frozen), 3 (O3 frozen) and 4 (O4 frozen) is compared with gradient flow of the weights.  We take geometric means over
seeds of the hierarchy's errors at t = 2, |Theta_hier - Theta| / |Theta_0| and |f_hier - f|.  Pairs of neighbouring
widths give local exponents, with 95 % intervals over seeds.

For ReLU, O3 and O4 are derivatives of a single linear piece of the network.  Training moves the pre-activations of
about sqrt(n) units across 0, and each of these units changes the kernel by a term of order 1/n with random sign.  The
sum of these terms is of order n^(-3/4).  The derivatives at theta_0 do not capture it.
"""

from __future__ import annotations

import argparse
from itertools import pairwise, product
from typing import Any

import numpy as np

import minintk as mn
from minintk.diagnostics import power_law

PHI = {"tanh": mn.Tanh(), "erf": mn.Erf(), "ReLU": mn.ReLU()}
NAMES = {2: "frozen kernel", 3: "+ O3", 4: "+ O3 + O4"}
SCALES: dict[str, dict[str, Any]] = {
    "small": {"widths": (64, 128, 256), "seeds": 16},
    "evening": {"widths": (64, 128, 256, 512, 1024, 2048), "seeds": 32},
}
N, KINKED = 8, 512  # number of examples, and the width of the widest ReLU network, whose flow takes many steps


def errors(phi: mn.Activation, n: int, seed: int) -> Any:
    """Train one network, and return the errors (orders, 2) of each hierarchy's kernel and outputs at t = 2."""
    x = np.random.default_rng(0).standard_normal((N, 64))
    x *= 8 / np.linalg.norm(x, axis=1, keepdims=True)
    layers = [layer for _ in range(2) for layer in (mn.Dense(n, w_std=2**0.5 if phi == mn.ReLU() else 1.0), phi)]
    net = mn.Network(mn.Sequential(*layers, mn.Dense(1)), (64,))
    theta0 = net.init(np.random.default_rng([seed, n]))
    y = net(theta0, x) + np.tile([[1.0], [-1.0]], (N // 2, 1))
    how: dict[str, Any] = {"loss": mn.mse, "times": 2.0}
    fine = mn.Solver(1e-5, 1e-7, "RK45") if phi == mn.ReLU() else mn.Solver(1e-11, 1e-13)
    *_, true = mn.flow(net, theta0, x, y, by=fine, **how)
    assert true.theta is not None
    start, kernel = mn.ntk_full(net, theta0, x), mn.ntk_full(net, true.theta, x)
    ends = [list(mn.hierarchy(net, theta0, x, y, order=order, **how))[-1] for order in NAMES]
    norm: Any = np.linalg.norm
    return np.array([(norm(end.kernel - kernel) / norm(start), norm(end.f - true.f)) for end in ends])


def main(out: str | None = None, widths: tuple[int, ...] = (64, 128, 256), seeds: int = 16) -> dict[str, float]:
    """Return {"activation, order: quantity, widths": exponent}, with half-widths of 95 % intervals under "... ±"."""
    results, measured = dict[str, float](), {}
    for name, phi in PHI.items():
        here = [n for n in widths if phi != mn.ReLU() or n <= KINKED]
        logs = np.log([[errors(phi, n, seed) for seed in range(seeds)] for n in here])  # (width, seed, order, 2)
        mean, error = logs.mean(axis=1), logs.std(axis=1, ddof=1) / seeds**0.5
        measured[name] = np.array(here), mean, error
        for (o, label), (w, what) in product(enumerate(NAMES.values()), enumerate(("kernel", "outputs"))):
            for i, (a, b) in enumerate(pairwise(here)):
                key, step = f"{name}, {label}: {what}, {a} to {b}", np.log(b / a)
                results[key] = float((mean[i + 1] - mean[i])[o, w] / step)
                results[f"{key} ±"] = float(1.96 * np.hypot(error[i + 1], error[i])[o, w] / step)
            key, law = f"{name}, {label}: {what}, all widths", power_law(here, list(np.exp(logs[:, :, o, w])))
            results |= {key: law.exponent, f"{key} ±": float(np.ptp(law.interval)) / 2}
    if out:
        draw(out, measured)
    return results


def draw(out: str, measured: dict[str, Any]) -> None:
    """Plot the error of each hierarchy's kernel against the width, with a panel for each activation."""
    import matplotlib.pyplot as plt

    from analytic.verify.figures import MARKERS

    plt.style.use("analytic.verify.look")
    figure, panels = plt.subplots(1, 3, figsize=(12, 4.2), sharey=True, layout="constrained")
    for axes, (name, (n, mean, error)) in zip(panels, measured.items(), strict=True):
        for o, label in enumerate(NAMES.values()):
            y, bars = np.exp(mean[:, o, 0]), np.expm1(1.96 * error[:, o, 0])
            axes.errorbar(n, y, y * bars, fmt=f"C{o}{MARKERS[o]}", capsize=2, label=label)
            power = 0.75 if name == "ReLU" else max(o, 1)
            axes.loglog(n, y[-1] * (n / n[-1]) ** -power, f"C{o}--", linewidth=1, label=f"theory: n^-{power}")
        axes.minorticks_off()
        axes.set(title=name, xlabel="width n", xticks=n, xticklabels=n)
        axes.set_ylabel("|Theta_T - theory| / |Theta_0|" if name == "tanh" else "")
        axes.legend(fontsize=7, loc="lower left")
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="small", help="widths and seeds")
    parser.add_argument("--out", default="kernel_hierarchy.png", help="the figure (%(default)s)")
    args = parser.parse_args()
    found = list(main(args.out, **SCALES[args.scale]).items())
    for (name, value), (_, half) in zip(found[::2], found[1::2]):
        print(f"{name:46} n^{value:+.2f} ± {half:.2f}")
