"""Simulate a hidden layer as a flow of particles: each neuron moves in the field that all neurons generate.

    python3 make.py python examples/particle_flow.py [--out FILE.png]

The output f(x) is the mean of a phi(w.x) over particles (w, a), with phi = tanh.  With e = (y - f)/N, the particles
move by dw/dt = sum e a phi'(w.x) x and da/dt = sum e phi(w.x), with sums over the N examples.  A network of width n
consists of n random particles, and 2^14 quasi-random particles approximate the mean-field limit (Mei et al. 2018).
"""

import argparse
from typing import Any

import numpy as np
from scipy.stats.qmc import MultivariateNormalQMC

X, DT, STEPS, WIDTHS = np.linspace(-2, 2, 5)[:, None] ** (0, 1), 0.5, 30, (8, 16, 32, 64)
Y = np.sin(2 * X[:, 1])


def flow(particles: Any) -> Any:
    """Return f(X) : (STEPS + 1, ..., N), at initialisation and after each step.

    particles : (..., n, 3), the initial values of w and a.
    """
    w, a, path = particles[..., :2], particles[..., 2:], []
    for _ in range(STEPS + 1):
        phi = np.tanh(w @ X.T)
        path.append((a * phi).mean(axis=-2))
        e = (Y - path[-1])[..., None, :] / len(X)
        w, a = w + DT * (e * a * (1 - phi**2)) @ X, a + DT * (e * phi).sum(axis=-1, keepdims=True)
    return np.array(path)


def main(out: str | None = None, widths: tuple[int, ...] = WIDTHS, neurons: int = 400_000) -> dict[str, float]:
    """Return, for each n, n |mean - limit| with its standard error and sqrt(n) |one network - limit| at the end."""
    few, limit = (flow(MultivariateNormalQMC(np.zeros(3), seed=0).random(2**k))[-1] for k in (12, 14))
    found, rows = {"limit: 2^12 particles less 2^14": float(np.abs(few - limit).max())}, []
    for n in widths:
        draws = np.random.default_rng(n).standard_normal
        off = np.concatenate([flow(draws((8000 // n, n, 3)))[-1] for _ in range(neurons // 8000)]) - limit
        worst = off[:, np.abs(off.mean(axis=0)).argmax()]
        rows.append((n, abs(worst.mean()), worst.std() / len(off) ** 0.5, (off**2).mean() ** 0.5))
        found |= {f"width {n}: n |mean - limit|": n * rows[-1][1], f"width {n}: its error": n * rows[-1][2]}
        found[f"width {n}: sqrt(n) |one - limit|"] = n**0.5 * rows[-1][3]
    if out:
        import matplotlib.pyplot as plt

        plt.style.use("analytic.verify.look")
        n, mean, error, one = np.array(rows).T
        plt.errorbar(n, mean, 2 * error, fmt="o", capsize=3, label="mean of networks, 2 standard errors")
        plt.loglog(n, one, "s", label="one network")
        plt.loglog(n, mean[0] * n[0] / n, "C0--", n, one[0] * (n[0] / n) ** 0.5, "C1--")
        plt.xticks(n, [f"{k:.0f}" for k in n])
        plt.minorticks_off()
        plt.gca().set(xlabel="particles n", ylabel="distance from infinitely many", title="dashed: 1/n and $n^{-1/2}$")
        plt.legend()
        plt.savefig(out, dpi=120)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="particle_flow.png", help="the figure (%(default)s)")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:36} {value:.4g}")
