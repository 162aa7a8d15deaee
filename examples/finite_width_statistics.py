"""Compare exact and measured statistics of random ReLU networks of finite width.

    python3 make.py python examples/finite_width_statistics.py [--out FILE.png]

At every width, the mean of the tangent kernel hatTheta(x, x) is the analytic Theta(x, x).  The variance of hatTheta is
also known (`analytic.finite_width`).  For one hidden layer of width n, n Var / Theta^2 = 3.  For deep networks Var /
Theta^2 grows as e^(5 depth / width) (Hanin and Nica 2020).  The script compares means over many networks with the
theory by z-scores.  The measured relative variance is the mean of (hatTheta / Theta - 1)^2, with its standard error.
"""

from __future__ import annotations

import argparse
from math import sqrt
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

SHAPES = ((1, 4), (1, 16), (1, 64), (2, 16), (4, 16), (8, 16), (2, 32), (4, 32), (8, 32), (16, 32))
Host = np.ndarray[Any, Any]


def spec(depth: int, n: int) -> mn.Sequential:
    """Build a ReLU network without biases, with `depth` hidden layers of width n."""
    return mn.Sequential(*[mn.Dense(n, w_std=2**0.5), mn.ReLU()] * depth, mn.Dense(1))


def kernels(depth: int, n: int, members: int, rng: np.random.Generator) -> Host:
    """Draw networks, and return hatTheta(x, x) of each for an input x in 2 dimensions with |x|^2 = 2."""
    net, x = mn.Network(spec(depth, n), (2,)), np.array([[1.0, -1.0]])
    batch = max(1, min(members, 2_000_000 // net.size))
    parts = [mn.ntk(net, net.init(rng, ensemble=batch), x)[:, 0, 0] for _ in range(-(-members // batch))]
    return np.concatenate(parts)[:members]


def z(samples: Host, truth: float) -> float:
    """Return (mean - truth) / standard error of the mean."""
    return float((samples.mean() - truth) / (samples.std(ddof=1) / sqrt(len(samples))))


def main(
    out: str | None = None, shapes: tuple[tuple[int, int], ...] = SHAPES, members: int = 20_000
) -> dict[str, float]:
    """Return the z-scores of the kernel's mean and variance for each depth and width.

    Also return the largest |z| and, for one hidden layer, n Var / Theta^2 with its standard error.
    """
    rng, found, points = np.random.default_rng(0), {}, []
    for depth, n in shapes:
        theory = an.finite_width(spec(depth, n))
        samples = kernels(depth, n, members, rng)
        square = (samples / theory.ntk - 1) ** 2
        found[f"depth {depth}, width {n}: z of mean"] = z(samples, theory.ntk)
        found[f"depth {depth}, width {n}: z of variance"] = z(square, theory.relative)
        points.append((depth, n, square.mean(), square.std(ddof=1) / sqrt(members)))
        if depth == 1:
            found[f"width {n}: n Var / Theta^2"] = n * points[-1][2]
            found[f"width {n}: its error"] = n * points[-1][3]
    worst = max(abs(value) for name, value in found.items() if ": z of" in name)
    found["largest |z|"] = worst
    if out:
        draw(out, points, worst)
    return found


def draw(out: str, points: list[tuple[int, int, float, float]], worst: float) -> None:
    """Plot 1 + Var / Theta^2 against depth / width, and Var / Theta^2 for one hidden layer against the width."""
    import matplotlib.pyplot as plt

    from analytic.verify.figures import MARKERS

    plt.style.use("analytic.verify.look")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for colour, n in enumerate(sorted({n for depth, n, *_ in points if depth > 1})):
        depths = np.arange(1, n + 1)
        exact = [1 + an.finite_width(spec(int(depth), n)).relative for depth in depths]
        left.semilogy(depths / n, exact, f"C{colour}--")
        here = np.array([(depth / n, 1 + v, e) for depth, m, v, e in points if m == n])
        style = f"C{colour}{MARKERS[colour]}"
        left.errorbar(*here.T[:2], yerr=3 * here.T[2], fmt=style, label=f"width {n} (dashed: exact)")
    beta = np.linspace(0, 1, 100)
    left.plot(beta, [an.depth_over_width(b) for b in beta], "k--", label="depth and width infinite")
    left.plot(beta, np.exp(5 * beta), "k:", label=r"$e^{5 L/n}$")
    left.set(xlabel="depth / width", ylabel=r"E $\hat\Theta^2$ / (E $\hat\Theta)^2$")
    left.legend()
    one = np.array([(n, v, e) for depth, n, v, e in points if depth == 1])
    right.errorbar(one[:, 0], one[:, 1], yerr=3 * one[:, 2], fmt="o", label="measured, 3 standard errors")
    right.loglog(one[:, 0], 3 / one[:, 0], "k--", label="exact: 3 / n")
    right.set(xlabel="width n", ylabel=r"Var $\hat\Theta$ / $\Theta^2$", title=f"one layer; largest |z| {worst:.1f}")
    right.set_xticks(one[:, 0], [f"{n:g}" for n in one[:, 0]])
    right.minorticks_off()
    right.legend()
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="finite_width_statistics.png", help="the figure (%(default)s)")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:36} {value:.4g}")
