"""The test loss against steps, parameters and examples, predicted from a spectrum (`analytic.learning_curve`).

    python3 make.py python examples/learning_curves.py [--out FILE.png]

Random-feature models with n parameters learn a power law from N = 4n noisy examples; their mean test loss stands beside
the formula, at eight widths and eight times.  On digits, the spectrum of the tangent kernel
on all images predicts what gradient flow learns from some of them.  Last, the loss that a budget of width x time buys.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

Host = np.ndarray[Any, Any]
WIDTHS, TIMES, NOISE = (4, 8, 16, 32, 64, 128, 256, 512), np.geomspace(0.3, 1000, 8), 0.1


def losses(lam: Host, v: Host, n: int, rng: np.random.Generator) -> Host:
    """Test loss (T,) at TIMES of one random-feature model, gradient flow on N = 4n examples; its gram diagonalised."""
    features, z = np.sqrt(lam / n)[:, None] * rng.standard_normal((len(lam), n)), rng.standard_normal((4 * n, len(lam)))
    x, y = z @ features, z @ v + np.sqrt(NOISE) * rng.standard_normal(4 * n)
    mu, Q = np.linalg.eigh(x.T @ x / (4 * n))
    theta = Q @ (-np.expm1(-np.outer(mu, TIMES)) / mu[:, None] * (Q.T @ (x.T @ y / (4 * n)))[:, None])
    return np.asarray(np.sum((v[:, None] - features @ theta) ** 2, axis=0) + NOISE)


def digits(sizes: tuple[int, ...], draws: int = 20) -> tuple[Host, Host, Host]:
    """Test loss of gradient flow on the parity of digits, (sizes, T): mean over draws, standard error, theory."""
    x, y = mn.datasets.digits().on_sphere().parity()
    k = an.kernel(mn.Sequential(*[mn.Dense(512, w_std=2**0.5, b_std=0.1), mn.ReLU()] * 3, mn.Dense(1))).ntk(x)
    (modes, power), rng, found = an.data_modes(k, y), np.random.default_rng(2), []
    for N in sizes:
        for _ in range(draws):
            at = rng.choice(len(x), N, replace=False)
            found.append(((an.gradient_flow(k[np.ix_(at, at)], y[at]).predict(TIMES, k[:, at]) - y) ** 2).mean((1, 2)))
    error = np.reshape(found, (len(sizes), draws, -1))
    theory = [an.learning_curve(modes, power, examples=N).flow(TIMES) for N in sizes]
    return error.mean(1), error.std(1, ddof=1) / np.sqrt(draws), np.array(theory)


def main(out: str | None = None, widths: tuple[int, ...] = WIDTHS, work: int = 16384) -> dict[str, float]:
    """Relative distances of simulated losses from theory, and the exponent of the loss that a budget buys."""
    k, rng, means, errors, theory = np.arange(1, 1001.0), np.random.default_rng(1), [], [], []
    for n in widths:
        sample = np.array([losses(k**-1.5, k**-0.9, n, rng) for _ in range(work // n)])
        curve = an.learning_curve(an.Modes(k**-1.5, k**0), k**-1.8, width=n, examples=4 * n, noise=NOISE)
        theory.append(curve.flow(TIMES))
        means.append(sample.mean(0) / theory[-1] - 1)
        errors.append(sample.std(0, ddof=1) / np.sqrt(len(sample)) / theory[-1])
    apart, error, wide = np.array(means), np.array(errors), np.array(widths) >= 64
    found = {"widths >= 64: largest distance": float(np.abs(apart[wide]).max())}
    found["widths >= 64: largest standard error"] = float(error[wide].max())
    mean, spread, predicted = digits(sizes := (16, 64, 256))
    found["digits: largest relative distance"] = float(np.abs(mean / predicted - 1).max())
    found["digits: largest standard error"] = float((spread / predicted).max())
    (modes, power), budgets = an.power_law(1.5, 1.8, 10**9), np.geomspace(1e2, 1e8, 7)
    best, least = an.compute_optimal(modes, power, budgets)
    found["budget: exponent"] = -np.log10(least[-1] / least[-3]) / 2
    found["budget: exponent, theory"] = an.exponents(1.5, 1.8).budget
    if out:
        import matplotlib.pyplot as plt

        from analytic.verify.figures import MARKERS

        plt.style.use("analytic.verify.look")
        figure, ((first, second), (third, last)) = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
        for i, n in list(enumerate(widths))[::2]:
            first.loglog(TIMES, theory[i], f"C{i // 2}--")
            each = theory[i] * (1 + apart[i])
            first.loglog(TIMES, each, f"C{i // 2}{MARKERS[i // 2]}", label=f"n = {n}, N = {4 * n}")
        first.set(xlabel="time (steps x rate)", ylabel="test loss", title="random features, and theory (dashed)")
        second.loglog(widths, np.sqrt(np.mean(apart**2, axis=1)), "o", label="root mean square over times")
        second.loglog(widths, np.sqrt(np.mean(error**2, axis=1)), "x", label="standard error")
        second.loglog(widths, 0.4 / np.array(widths), "k--", label="0.4 / n")
        second.set(xlabel="width n", ylabel="relative distance", title="of the mean, from the formula")
        for i, N in enumerate(sizes):
            third.semilogx(TIMES, predicted[i], f"C{i}--")
            third.errorbar(TIMES, mean[i], spread[i], fmt=f"C{i}{MARKERS[i]}", label=f"N = {N}")
        third.set(xlabel="time", ylabel="test loss", title="parity of digits, and theory from the spectrum")
        for n in (10, 100, 1000):
            curve, t = an.learning_curve(modes, power, width=n), np.geomspace(1, 1e8 / n)
            last.loglog(n * t, curve.flow(t), label=f"n = {n}")
        last.loglog(budgets, least, "k--", label=f"best width ({best[0]:.0f} to {best[-1]:.0f})")
        last.set(xlabel="budget: width x time", ylabel="test loss", title="power law, infinitely many examples")
        _ = [axes.legend() for axes in figure.axes]
        figure.savefig(out, dpi=120)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="learning_curves.png", help="the figure")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:44} {value:.4g}")
