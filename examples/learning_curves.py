"""Predict from a spectrum how the test loss depends on steps, parameters and examples (`analytic.learning_curve`).

    python3 make.py python examples/learning_curves.py [--out FILE.png]

Random-feature models with n parameters learn a power-law target from N = 4n noisy examples.  The figure shows the
models' mean test loss and the predicted loss at four of eight widths and at eight times.  The relative difference
between these two losses falls as 1/n.  On digits, the spectrum of the tangent kernel on all images predicts the test
loss of gradient flow on a subset.  The last panel shows the relative difference between this loss and its prediction.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

Host = np.ndarray[Any, Any]
WIDTHS, TIMES, NOISE = (4, 8, 16, 32, 64, 128, 256, 512), np.geomspace(0.3, 1000, 8), 0.1


def losses(lam: Host, v2: Host, n: int, rng: np.random.Generator) -> Host:
    """Return the test loss at TIMES, (T,), of one random-feature model on N = 4n examples.

    The target v has the squared coefficients v2. The loss is averaged over the signs of v and over the noise.
    """
    features, z = np.sqrt(lam / n)[:, None] * rng.standard_normal((len(lam), n)), rng.standard_normal((4 * n, len(lam)))
    x = z @ features
    mu, Q = np.linalg.eigh(x.T @ x / (4 * n))
    out, of = features @ Q, Q.T @ (x.T @ z) / (4 * n)  # residual without noise: v - out @ diag(learned) @ of @ v
    gram, found = out.T @ out, []
    for learned in -np.expm1(-np.outer(TIMES, mu)) / mu:
        step = learned[:, None] * of
        left = 1 - 2 * np.sum(out.T * step, axis=0) + np.sum(step * (gram @ step), axis=0)
        found.append(v2 @ left + NOISE * (1 + (np.diag(gram) * mu) @ learned**2 / (4 * n)))
    return np.array(found)


def mean_and_error(sample: Host) -> tuple[Host, Host]:
    """Return the mean over draws and its standard error."""
    return sample.mean(0), sample.std(0, ddof=1) / np.sqrt(len(sample))


def digits(sizes: tuple[int, ...], draws: int = 20) -> Host:
    """Train on digits by gradient flow; return the mean of loss / theory - 1 and its standard error, (sizes, 2, T)."""
    x, y = mn.datasets.digits().on_sphere().parity()
    k = an.kernel(mn.Sequential(*[mn.Dense(512, w_std=2**0.5, b_std=0.1), mn.ReLU()] * 3, mn.Dense(1))).ntk(x)
    (modes, power), rng, found = an.data_modes(k, y), np.random.default_rng(2), []
    for N in sizes:
        some = [rng.choice(len(x), N, replace=False) for _ in range(draws)]
        f = np.array([an.gradient_flow(k[np.ix_(at, at)], y[at]).predict(TIMES, k[:, at]) for at in some])
        theory = an.learning_curve(modes, power, examples=N).flow(TIMES)
        found.append(mean_and_error(((f - y) ** 2).mean((2, 3)) / theory - 1))
    return np.array(found)


def main(out: str | None = None, widths: tuple[int, ...] = WIDTHS, work: int = 16384) -> dict[str, float]:
    """Return the theory's largest relative errors and the exponents of the error in width and of the loss in budget."""
    k, rng, apart, theory, late = np.arange(1, 1001.0), np.random.default_rng(1), [], [], []
    for n in widths:
        curve = an.learning_curve(an.Modes(k**-1.5, k**0), k**-1.8, width=n, examples=4 * n, noise=NOISE)
        theory.append(curve.flow(TIMES))
        sample = np.array([losses(k**-1.5, k**-1.8, n, rng) for _ in range(work // n)]) / theory[-1] - 1
        apart.append(mean_and_error(sample))
        weights = apart[-1][1] ** -2  # inverse variances, largest at late times
        late.append(mean_and_error(sample @ weights / weights.sum()))
    found, at = dict[str, float](), np.array(widths)
    for name, far in (("widths >= 64", np.array(apart)[at >= 64]), ("digits", digits(sizes := (16, 64, 256)))):
        found[f"{name}: largest distance"], found[f"{name}: largest standard error"] = np.abs(far).max((0, 2))
    distance, error = np.array(late)[at >= 16].T
    fit, covariance = np.polyfit(np.log(at[at >= 16]), np.log(distance), 1, w=distance / error, cov="unscaled")
    found |= {"widths >= 16: exponent of the distance": fit[0], "widths >= 16: +-": 2 * covariance[0, 0] ** 0.5}
    _, least = an.compute_optimal(*an.power_law(1.5, 1.8, 10**9), np.geomspace(1e2, 1e8, 7))
    found["budget: exponent"] = np.log10(least[-3] / least[-1]) / 2
    found["budget: theory"] = an.exponents(1.5, 1.8).budget
    if out:
        import matplotlib.pyplot as plt

        plt.style.use("analytic.verify.look")
        figure, (first, second, third) = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
        for i, n in list(enumerate(widths))[::2]:
            first.loglog(TIMES, theory[i], f"C{i // 2}--")
            simulated, look = theory[i] * (1 + apart[i][0]), f"C{i // 2}{'osD^'[i // 2]}"
            first.loglog(TIMES, simulated, look, label=f"n = {n}, N = {4 * n}")
        first.set(xlabel="time (steps x rate)", ylabel="test loss", title="random features, and theory (dashed)")
        second.errorbar(widths, *np.transpose(late * np.array([1, 2])), fmt="o", label="mean over times, 2 errors")
        second.loglog(widths, 0.35 / np.array(widths), "k--", label="0.35 / n")
        second.set(xlabel="width n", ylabel="relative distance", xscale="log", yscale="log", title="of the means")
        for N, (mean, error) in zip(sizes, far, strict=True):
            third.errorbar(TIMES, mean, error, fmt="o-", label=f"N = {N}")
        third.set(xscale="log", xlabel="time", title="parity of digits, distance from theory")
        _ = [axes.legend() for axes in figure.axes]
        figure.savefig(out, dpi=120)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="learning_curves.png", help="the figure (%(default)s)")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:44} {value:.4g}")
