"""Use a kernel's spectrum to predict what an infinitely wide network learns from N examples.

    python3 make.py python examples/eigenlearning.py [--out FILE.png]

On the cube {-1, 1}^10 the eigenfunctions of the tangent kernel are products of coordinates, with l factors at level l
(`analytic.cube_modes`).  `analytic.eigenlearning` predicts the learnability of each level and the test error.  Both are
measured by regression on random points.  The test error is also predicted and measured on digits.  The theory assumes a
continuum of inputs, so the training sets contain at most a quarter of the points.  For ReLU networks on the sphere in d
dimensions, eigenvalues fall as l^-d for the NTK and l^-(d+2) for the NNGP kernel (Bietti and Mairal 2019).
"""

from __future__ import annotations

import argparse
from itertools import product
from math import sqrt
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

SIZES, LEVELS, NOISE, RIDGE = (8, 16, 32, 64, 128, 256), (1, 2, 3, 4), 0.1, 0.1
Host = np.ndarray[Any, Any]


def spec(hidden: int = 3, bias: float = 0.1) -> mn.Sequential:
    """Build a ReLU network. Without biases, one hidden layer cannot learn products of 3, 5, ... coordinates."""
    return mn.Sequential(*[mn.Dense(512, w_std=2**0.5, b_std=bias), mn.ReLU()] * hidden, mn.Dense(1))


def measured(kernel: mn.Array, modes: Host, sizes: tuple[int, ...], draws: int, noise: float) -> tuple[Host, Host]:
    """Run regression on random points; return learnabilities (sizes, draws, levels) and test errors (sizes, draws).

    Each learnability is measured with one mode as the target, and each error with the sum of these modes plus noise.
    """
    rng, learned, errors = np.random.default_rng(0), [], []
    for n in sizes:
        for _ in range(draws):
            at = rng.choice(len(kernel), n, replace=False)
            y = np.column_stack([modes, modes.sum(1) + sqrt(noise) * rng.standard_normal(len(modes))])
            f = kernel[:, at] @ np.linalg.solve(kernel[np.ix_(at, at)] + RIDGE * np.eye(n), y[at])
            learned.append((f[:, :-1] * modes).mean(0))
            errors.append(((f[:, -1] - modes.sum(1)) ** 2).mean())
    return np.reshape(learned, (len(sizes), draws, -1)), np.reshape(errors, (len(sizes), draws))


def main(out: str | None = None, sizes: tuple[int, ...] = SIZES, draws: int = 25) -> dict[str, float]:
    """Return the largest deviations of learnabilities and test errors from theory, and the eigenvalues' exponents.

    The deviations of the test errors are relative. The eigenvalues are those of the kernels on the sphere.
    """
    x, rng = np.array(list(product((-1.0, 1.0), repeat=10))), np.random.default_rng(1)
    modes = np.stack([x[:, rng.choice(10, level, replace=False)].prod(1) for level in LEVELS], axis=1)
    cube = [an.eigenlearning(an.cube_modes(an.kernel(spec()), 10), n, ridge=RIDGE) for n in sizes]
    L = np.array([learned.learnability[list(LEVELS)] for learned in cube])
    power = 1.0 * np.isin(np.arange(11), LEVELS)
    learned, errors = measured(an.kernel(spec()).ntk(x), modes, sizes, draws, NOISE)
    images, parity = mn.datasets.digits().on_sphere().parity()
    of_digits, share = an.data_modes(k := an.kernel(spec()).ntk(images), parity)
    digits = [an.eigenlearning(of_digits, n, ridge=RIDGE).test_error(share) for n in sizes]
    compared = {
        "cube, 4 levels, noise": (errors, [one.test_error(power, NOISE) - NOISE for one in cube]),
        "digits, parity": (measured(k, parity, sizes, draws, 0.0)[1], digits),
    }
    found = {"learnability: largest distance": float(np.abs(learned.mean(1) - L).max())}
    for name, (e, theory) in compared.items():
        found[f"{name}: largest relative distance"] = float(np.abs(e.mean(1) / theory - 1).max())
        found[f"{name}: largest standard error"] = float((e.std(1, ddof=1) / theory).max() / sqrt(draws))
    degrees, spheres = np.arange(101), {}
    for kind in ("ntk", "nngp"):
        spheres[kind] = an.sphere_modes(an.kernel(spec(1, 0.0)), 3, 100, kind=kind).eigenvalue
        some = (degrees >= 20) & (spheres[kind] > 0)
        slope, _ = np.polyfit(np.log(degrees[some]), np.log(spheres[kind][some]), 1)
        found[f"sphere, d = 3: exponent of {kind}"] = slope
    if out:
        import matplotlib.pyplot as plt

        from analytic.verify.figures import MARKERS

        plt.style.use("analytic.verify.look")
        figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
        for i, level in enumerate(LEVELS):
            left.semilogx(sizes, L[:, i], f"C{i}--")
            mean, spread = learned[:, :, i].mean(1), learned[:, :, i].std(1)
            left.errorbar(sizes, mean, spread, fmt=f"C{i}{MARKERS[i]}", label=f"{level} coordinates")
        left.set(xlabel="examples N", ylabel="learnability", title=f"{draws} draws (bars: their spread), and theory")
        for i, (name, (e, theory)) in enumerate(compared.items()):
            middle.errorbar(sizes, e.mean(1), e.std(1), fmt=f"C{i}{MARKERS[i]}", label=name)
            middle.loglog(sizes, theory, f"C{i}--")
        middle.set(xlabel="examples N", ylabel="mean squared test error")
        for (kind, values), marker in zip(spheres.items(), MARKERS):
            right.loglog(degrees[values > 0][1:], values[values > 0][1:], marker, markersize=3, label=kind)
        for exponent in (-3.0, -5.0):
            right.loglog(degrees[10:], degrees[10:] ** exponent, "k--", label=f"$l^{{{exponent:.0f}}}$")
        right.set(xlabel="degree l", ylabel="eigenvalue", title="ReLU, on the sphere in d = 3")
        _ = [axes.legend() for axes in (left, middle, right)]
        figure.savefig(out, dpi=120)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="eigenlearning.png", help="the figure (%(default)s)")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:44} {value:.4g}")
