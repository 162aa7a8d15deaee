"""Draw the logo, and the preview image that other sites show for a link, with trained networks and their limit.

    python3 make.py python docs/_ext/card.py

The image shows five training points on a sine curve.  At each x, the band contains about 95 % of the infinitely wide
networks trained on these points (`an.ensemble`).  The lines are networks of width 512, trained by `mn.train`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

import analytic as an
import minintk as mn

mpl.use("Agg")
import matplotlib.pyplot as plt

STATIC = Path(__file__).resolve().parents[1] / "_static"
BAND, LINE, INK = "#9ec9ea", "#12507f", "#16202b"

x = np.array([-2.4, -1.2, 0.0, 1.0, 2.6])[:, None]
y, grid = np.sin(1.5 * x), np.linspace(-np.pi, np.pi, 161)[:, None]
spec = mn.Sequential(mn.Dense(512, w_std=1.5, b_std=0.3), mn.Erf(), mn.Dense(1, w_std=1.5))


def band() -> tuple[Any, Any]:
    """Return (mean, twice the standard deviation) of infinitely wide trained networks on the grid, as (161,) arrays."""
    mean, cov = an.ensemble(an.kernel(spec), x, y).predict(grid, t=np.inf, cov=True)
    return mean[:, 0], 2 * np.sqrt(np.diag(cov))


def trained(count: int = 8) -> Any:
    """Return the outputs (count, 161) of finite networks on the grid after 20,000 training steps."""
    net = mn.Network(spec, (1,), parametrization=mn.NTK())
    theta0 = np.stack([net.init(np.random.default_rng(s)) for s in range(count)])
    lr = 0.5 * an.max_learning_rate(an.kernel(spec).ntk(x))
    *_, last = mn.train(net, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(lr), steps=20_000, every=20_000)
    return net(last.theta, grid)[..., 0]


def card(mean: Any, half: Any) -> None:
    """Draw card.png, 1280 x 640 pixels. The band extends from mean - half to mean + half."""
    figure = plt.figure(figsize=(12.8, 6.4), dpi=100, facecolor="white")
    axes = figure.add_axes((0.46, 0.08, 0.52, 0.84))
    axes.fill_between(grid[:, 0], mean - half, mean + half, color=BAND, lw=0)
    axes.plot(grid[:, 0], trained().T, color=LINE, lw=1.1, alpha=0.75)
    axes.plot(x[:, 0], y[:, 0], "o", color=INK, ms=11, zorder=3)
    axes.set_axis_off()
    words = [
        (0.66, "minintk", 64, "bold", INK),
        (0.50, "one neural network,\nfinite and infinitely wide", 25, "normal", INK),
        (0.30, "kernels, training in closed form,\nmuP, by hand in NumPy and CuPy", 18, "normal", "#4a5866"),
        (0.11, "band: 95 % of infinitely wide networks, trained\nlines: eight of width 512", 13, "normal", LINE),
    ]
    for height, text, size, weight, color in words:
        figure.text(0.05, height, text, fontsize=size, fontweight=weight, color=color, linespacing=1.35)
    figure.savefig(STATIC / "card.png", pil_kwargs={"optimize": True})


def logo() -> None:
    """Draw logo.svg, 64 x 64 units: three points, and the mean and ±2 standard deviations of a posterior given them."""
    points, at = np.array([[-1.0], [0.1], [1.0]]), np.linspace(-1.55, 1.55, 61)[:, None]
    kernel = an.kernel(mn.Sequential(mn.Dense(512, w_std=3.0, b_std=0.3), mn.Erf(), mn.Dense(1, w_std=1.4)))
    gp = an.posterior(kernel, points, values := np.array([[-0.55], [0.7], [-0.3]]))
    mean, cov = gp.predict(at, cov=True)
    half = 2 * np.sqrt(np.maximum(np.diag(cov), 0))

    def place(u: Any, v: Any) -> list[str]:
        return [f"{32 + 20 * a:.1f},{33 - 21 * b:.1f}" for a, b in zip(u.ravel(), v.ravel())]

    above, below = place(at, mean[:, 0] + half), place(at, mean[:, 0] - half)
    dots = (f'<circle cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" r="4"/>' for p in place(points, values))
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64" fill="{LINE}">'
        f'<polygon points="{" ".join(above + below[::-1])}" fill="{BAND}"/>'
        f'<polyline points="{" ".join(place(at, mean))}" fill="none" stroke="{LINE}" stroke-width="2.5"/>'
        f"{''.join(dots)}</svg>\n"
    )
    (STATIC / "logo.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    card(*band())
    logo()
