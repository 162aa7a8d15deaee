"""Kernels of random convolutional networks converge to the analytic kernels: Lee et al. 2019, figure S10.

    python3 make.py python examples/lee_convolutional_kernels.py [--out DIR] [--data DIR --set cifar10]

The untrained networks have two 3 x 3 convolutions with ReLU, then Flatten or GlobalAvgPool, and a dense layer.  For
networks with n channels we measure the error |mean of M kernels - Theta| / |Theta| of the NTK and of the NNGP kernel,
where Theta is the analytic kernel.  By the law of large numbers over channels and networks, the error falls as (n
M)^(-1/2).  With Flatten, the kernel uses only pairs of pixels at equal positions.  With pooling, it averages over all
pairs (Novak et al. 2019; Arora et al. 2019).  The control uses the analytic kernel for the other ending.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, images, interval, percent, placed, plus
from lee import HE, powers, widths_axis
from verdicts import EXPONENT, MUCH, below, near

import analytic as an
import minintk as mn
from minintk.arrays import to_host

SIZES: dict[str, dict[str, Any]] = {
    "small": {"channels": (16, 32, 64, 128, 256), "draws": 16, "repeats": 12, "n": 8},
    "evening": {"channels": (16, 32, 64, 128), "draws": 16, "repeats": 16, "n": 6},
    "paper": {"channels": (16, 64, 256, 512), "draws": 256, "repeats": 10, "n": 20},
}
ENDS = {"Flatten": (mn.Flatten(),), "GlobalAvgPool": (mn.GlobalAvgPool(),)}
KINDS = ("NTK", "NNGP")


def spec(end: str, channels: int) -> mn.Sequential:
    """Build a network of two ReLU convolutions, the layers ENDS[`end`] and a dense layer, all without biases."""
    body = [layer for _ in range(2) for layer in (mn.Conv2d(channels, 3, w_std=HE), mn.ReLU())]
    return mn.Sequential(*body, *ENDS[end], mn.Dense(1, w_std=HE))


@lru_cache(maxsize=1)
def theory(data: str, n: int) -> tuple[Any, dict[str, Any]]:
    """Return images and {ending: analytic NTK and NNGP kernels}. Equal calls can return the same arrays."""
    x = placed(images(data, 200, 1)[0].standardise().x[:n])[0]
    return x, {name: [to_host(k) for k in an.kernel(spec(name, 1)).both(x)[::-1]] for name in ENDS}


def work(data: str, end: str, n: int, channels: int, draws: int, repeat: int) -> dict[str, Any]:
    """Return the errors of the NTK and NNGP kernels averaged over 1, 4, 16, ... `draws` networks.

    Also return the error of the last mean relative to the analytic kernel for the other ending.
    """
    x, limits = theory(data, n)
    other = next(name for name in ENDS if name != end)
    net = mn.Network(spec(end, channels), x.shape[1:])
    trunk = mn.Network(mn.Sequential(*net.spec.layers[:-1]), x.shape[1:])
    rng, sums, found = np.random.default_rng(repeat), np.zeros((2, n, n)), dict[str, Any]({k: [] for k in KINDS})
    for i in range(draws):
        theta = placed(net.init(rng, dtype=np.float32))[0]
        sums[0] += to_host(mn.ntk(net, theta, x))
        sums[1] += HE**2 * to_host(mn.nngp(trunk, theta[: trunk.size], x))
        if i + 1 in powers(draws, 4):
            for kind, total, exact in zip(KINDS, sums, limits[end]):
                found[kind].append(off(total / (i + 1), exact))
    for kind, total, exact in zip(KINDS, sums, limits[other]):
        found[f"{kind}, control"] = off(total / draws, exact)
    return found


def off(found: Any, exact: Any) -> float:
    """Return |found - exact| / |exact| in the Frobenius norm."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def main(s: Setting, channels: tuple[int, ...], draws: int, repeats: int, n: int) -> Found:
    """Fit powers of n M to the errors, and return the exponents with 95 % intervals. Plot errors against channels."""
    grid = {"end": tuple(ENDS), "channels": channels, "repeat": range(repeats)}
    runs = s.sweep(work, grid, data=s.data, draws=draws, n=n)
    many = powers(draws, 4)[1:]
    found: Found = {"channels": channels, "draws": many}
    size, rows = f"{n} images, n = {channels[0]} to {channels[-1]}, M = 1 to {draws}", []
    for end, kind in ((end, kind) for end in ENDS for kind in KINDS):
        error = runs[kind][list(ENDS).index(end)]  # (channels, repeats, draws)
        cells = np.swapaxes(error, 0, 1).reshape(repeats, -1)  # (repeats, channels x draws)
        fit = interval(np.polyfit(np.log(np.outer(channels, many)).ravel(), np.log(cells).T, 1)[0])
        least = interval(error[-1, :, -1])
        controls = runs[f"{kind}, control"][list(ENDS).index(end), -1]
        control = interval(controls)
        found[f"{end} {kind}"] = {"exponent": fit, "least": least, "control": control, "error": error.tolist()}
        how: dict[str, Any] = {"of": "seeds", "size": size, "seeds": repeats}
        rows += [
            Row(f"{end}: error of the {kind} kernel at the start ~ (n M)^b: b", "-1/2", plus(fit),
                agrees=near([fit], -0.5, EXPONENT), why="open", **how),
            Row(f"{end}: error of {draws} {kind} kernels' mean, {channels[-1]} channels; off the other end's (%)",
                "small; large", f"{percent(least, 1)}; {percent(control, 0)}", **how,
                agrees=below([interval(error[-1, :, -1] / controls)], MUCH), why="open"),
        ]  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(1, 2, figsize=(10, 5), sharey=True, layout="constrained")
        for panel, end in zip(panels, ENDS):
            for kind, mark in zip(KINDS, "os"):
                error = np.array(found[f"{end} {kind}"]["error"])
                law = (np.outer(channels, many) ** -0.5)[:, None]
                law = law[:, 0] * np.exp(np.log(error / law).mean())  # (channels, draws), fitted with a single constant
                color, power = f"C{KINDS.index(kind)}", found[f"{end} {kind}"]["exponent"]
                for m, face, label in ((0, None, f"one network; b = {plus(power)}"), (-1, "none", f"mean of {draws}")):
                    points = np.array([interval(v)[:2] for v in error[..., m]]).T
                    how = {"fmt": mark, "color": color, "mfc": face or color, "capsize": 3}
                    panel.errorbar(channels, *points, **how, label=f"{kind}, {label}")
                    panel.plot(channels, law[:, m], "--", color=color)
            panel.plot([], [], "k--", label="$(n M)^{-1/2}$")
            panel.set(yscale="log", title=end)
            widths_axis(panel, channels)
            panel.set_xlabel("channels n")
            panel.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14))
        panels[0].set_ylabel("relative error of the mean kernel")

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "lee_convolutional_kernels")
