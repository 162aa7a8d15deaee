"""Kernels of random networks converge to the analytic kernels with width and draws: Lee et al. 2019, figure S9.

    python3 make.py python examples/lee_monte_carlo.py [--out DIR] [--data DIR]

The untrained networks have three hidden ReLU layers of width n.  We measure the error |mean of M kernels - Theta| /
|Theta| of the NTK and NNGP kernels, where Theta is the analytic one.  By the law of large numbers over n units and M
networks, the error falls as (n M)^(-1/2).  The diagonals of ReLU kernels without biases have the analytic mean at any
width.  The means of other entries deviate by O(1/n) for any M, so the error falls more slowly with M at small n.
"""

from __future__ import annotations

from typing import Any

import lee
import numpy as np
from common import Found, Row, Setting, command_line, finish, interval, placed
from verdicts import EXPONENT, near

import analytic as an
import minintk as mn
from minintk.arrays import to_host

SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (32, 64, 128, 256, 512), "draws": (1, 4, 16), "repeats": 24},
    "evening": {"widths": (32, 64, 128, 256, 512, 1024), "draws": (1, 4, 16, 64), "repeats": 12},
    "paper": {"widths": (64, 256, 1024, 4096, 8192), "draws": (1, 4, 16, 64, 256), "repeats": 20},
}
N = 20
KINDS = ("NTK", "NNGP")


def work(data: str, width: int, draws: int, repeat: int) -> dict[str, Any]:
    """Return the errors of the NTK and NNGP kernels averaged over 1, 4, 16, ... `draws` networks."""
    x = lee.problem(data, "binary", N, 32)[0]
    limit = an.kernel(lee.spec("relu", 3, 1)).both(x)
    net = mn.Network(lee.spec("relu", 3, width), x.shape[1:])
    trunk = mn.Network(mn.Sequential(*net.spec.layers[:-1]), x.shape[1:])
    rng, found = np.random.default_rng(repeat), dict[str, Any]({kind: [] for kind in KINDS})
    for M in lee.powers(draws, 4)[1:]:
        sums = [np.zeros((N, N)) for _ in KINDS]
        for _ in range(M):
            (theta,) = placed(net.init(rng, dtype=np.float32))
            sums[0] += to_host(mn.ntk(net, theta, *lee.like(theta, x)))
            sums[1] += lee.HE**2 * to_host(mn.nngp(trunk, theta[: trunk.size], *lee.like(theta, x)))
        for kind, total, exact in zip(KINDS, sums, limit[::-1]):
            found[kind].append(float(np.linalg.norm(total / M - exact) / np.linalg.norm(exact)))
    return found


def main(s: Setting, widths: tuple[int, ...], draws: tuple[int, ...], repeats: int) -> Found:
    """Return the fitted exponents of the error in the width and in the number of draws, with 95 % intervals.

    Plot the errors against n M.
    """
    runs = s.sweep(work, {"width": widths, "repeat": range(repeats)}, data=s.data, draws=draws[-1])
    found: Found = {"widths": widths, "draws": draws}
    size, rows = f"{N} images, n = {widths[0]} to {widths[-1]}, M = 1 to {draws[-1]}", []
    for kind in KINDS:
        error = runs[kind]  # (widths, repeats, draws)
        found[kind] = [[interval(v) for v in cell.T] for cell in error]
        found[f"{kind}, in n"] = [lee.exponent(widths, error[..., m]) for m in range(len(draws))]
        found[f"{kind}, in M"] = [lee.exponent(draws, error[i].T) for i in range(len(widths))]
        for name, fits, each in (("n", found[f"{kind}, in n"], draws), ("M", found[f"{kind}, in M"], widths)):
            ends = [f"{lee.words(fits[i])} ({'M' if name == 'n' else 'n'} = {each[i]})" for i in (0, -1)]
            rows.append(
                Row(f"error of the {kind} kernel at the start ~ {name}^b: b", "-1/2", ", ".join(ends), "seeds", size,
                    repeats, near([fits[0], fits[-1]], -0.5, EXPONENT), "open")
            )  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
        for panel, kind in zip(panels, KINDS):
            cells = np.array([[v[:2] for v in cell] for cell in found[kind]])  # (widths, draws, 2)
            n = np.array(widths, float)
            for m, M in enumerate(draws):
                label = f"mean of {M}: {found[f'{kind}, in n'][m][0]:.2f}"
                panel.errorbar(n, *cells[:, m].T, fmt=f"C{m}{'os^vD'[m]}", ms=4, lw=1, label=label)
                first = np.mean(cells[:, 0, 0] * np.sqrt(n))
                panel.plot(n, first / np.sqrt(n * M), f"C{m}--", lw=1)
            panel.plot([], [], "k--", label="$c\\,(n M)^{-1/2}$, c from single networks")
            panel.set(yscale="log", title=f"{kind} kernel, {s.data}, {repeats} repeats")
            lee.widths_axis(panel, widths)
            panel.legend(fontsize=8)
        panels[0].set_ylabel("relative error of the mean kernel")

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "lee_monte_carlo")
