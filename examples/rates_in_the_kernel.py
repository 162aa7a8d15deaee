"""Include learning rates in the tangent kernel: a small step moves f by -lr J S J' (f - y) / N in any parametrization.

    python3 make.py python examples/rates_in_the_kernel.py [--out FILE.png]

If the tensors have learning rates lr S, the kernel of gradient descent is J S J', which `mn.ntk` computes.  The change
df of f in one tiny step is the one that this kernel predicts.  In muP and mean field, the step predicted by J J' is
wrong by a power of the width.  kappa, the relative change of the Jacobian on the way to a solution, also depends on S.
It falls with the width only if features do not move. At infinite width J S J' is the NTK of `analytic.kernel`, which
does not depend on the width in the spec.  At width n, the kernel differs from this limit by terms of order n^-1/2.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import analytic as an
import minintk as mn
from minintk.diagnostics import kappa, power_law

WIDTHS, LR = (64, 128, 256, 512, 1024), 1e-7
WAYS: dict[str, Any] = {"NTK": mn.NTK(), "muP": mn.SpectralMuP(), "mean field": mn.MeanField()}
ABC = mn.exponents(mn.SpectralMuP())  # muP given by its exponents a, b and c
PAIR = {"muP as ABC": ABC, "muP as ABC, c = 0": ABC.shifted(-0.5, 0, 0.5)}
Host = np.ndarray[Any, Any]


def spec(n: int) -> mn.Sequential:
    """Build a network with two hidden tanh layers of width n and one output."""
    return mn.Sequential(mn.Dense(n), mn.Tanh(), mn.Dense(n), mn.Tanh(), mn.Dense(1))


def measured(way: Any, n: int, x: Host, y: Host, seed: int) -> dict[str, float]:
    """Return the error of the step that J S J' predicts and the size of the one that J J' predicts, relative to df.

    Also return kappa with and without S, and the kernel's relative distance from the infinite-width kernel.
    """
    net = mn.Network(spec(n), x.shape[1:], way)
    theta, plain = net.init(np.random.default_rng([seed, n])), dict.fromkeys(net.layout.slices, 1.0)
    start, end = mn.train(net, theta, x, y, loss=mn.mse, optimizer=mn.SGD(LR), steps=1)
    df, kernel, limit = (end.f - start.f) / LR, mn.ntk(net, theta, x), an.kernel(spec(n), way).ntk(x)
    wrong = mn.ntk(net, theta, x, scales=plain) @ (start.f - y) / len(x)
    norm = np.linalg.norm
    return {
        "|df / lr + J S J' (f - y) / N| / |df / lr|": float(norm(df + kernel @ (start.f - y) / len(x)) / norm(df)),
        "|J J' (f - y) / N| / |df / lr|": float(norm(wrong) / norm(df)),
        "kappa": kappa(net, theta, x, y, starts=1, steps=6).kappa,
        "kappa without S": kappa(net, theta, x, y, starts=1, steps=6, scales=plain).kappa,
        "|Theta_n - Theta| / |Theta|": float(norm(kernel - limit) / norm(limit)),
    }


def main(out: str | None = None, widths: tuple[int, ...] = WIDTHS, seeds: int = 3) -> dict[str, float]:
    """Return one-step results at the first and last width, and the fitted exponents in the width. Plot the results."""
    x, y = mn.datasets.digits().pca(8).on_sphere().subset(8, np.random.default_rng(0)).parity()
    found, values = dict[str, float](), dict[str, dict[str, list[Host]]]()
    for name, way in (WAYS | PAIR).items():
        chosen, draws = (widths, seeds) if name in WAYS else ((widths[0], widths[-1]), 1)
        rows = [[measured(way, n, x, y, seed) for seed in range(draws)] for n in chosen]
        values[name] = columns = {what: [np.array([one[what] for one in each]) for each in rows] for what in rows[0][0]}
        step, wrong, *laws = columns
        for n, at in ((widths[0], 0), (widths[-1], -1)):
            found[f"{name}, n = {n}: {step}"] = float(columns[step][at].max())
            found[f"{name}, n = {n}: {wrong}"] = float(columns[wrong][at].mean())
            found[f"{name}, n = {n}: analytic NTK, mean"] = float(an.kernel(spec(n), way).diag(x).ntk.mean())
        for what in laws if name in WAYS else ():
            law = power_law(widths, columns[what])
            found |= {f"{name}: {what}, exponent": law.exponent, f"{name}: {what}, error": law.error}
    one, other = (np.array(values[name]["kappa"]) for name in PAIR)
    found["kappa of equivalent parametrizations, largest relative difference"] = float(np.abs(one / other - 1).max())
    if out:
        draw(out, widths, values)
    return found


def draw(out: str, widths: tuple[int, ...], values: dict[str, dict[str, list[Host]]]) -> None:
    """Plot the step predicted by J J', relative to df; kappa with and without S; and the distance from infinite width.

    Lines show the theory.
    """
    import matplotlib.pyplot as plt

    plt.style.use("analytic.verify.look")
    figure, panels = plt.subplots(1, 3, figsize=(15, 4.4), layout="constrained")
    wrong, with_s, without, limit = list(values["NTK"])[1:]
    shown = {wrong: (0.0, 1.0, -1.0), with_s: (-0.5, 0.0, 0.0), limit: (-0.5, -0.5, -0.5)}
    for axes, (title, theory) in zip(panels, shown.items(), strict=True):
        for i, name in enumerate(WAYS):
            for what, mark in ((title, "o"), (without, "x"))[: 2 if title == with_s else 1]:
                kept, law = values[name][what], power_law(widths, values[name][what])
                error = [float(v.std(ddof=1) / len(v) ** 0.5) for v in kept]
                label = f"{name}{', without S' if mark == 'x' else ''}: {law.exponent:.2f} ± {law.error:.2f}"
                axes.errorbar(widths, [float(v.mean()) for v in kept], error, fmt=f"C{i}{mark}", label=label)
                if mark == "o":
                    axes.loglog(widths, law(widths[2:3]) * (np.array(widths) / widths[2]) ** theory[i], f"C{i}--", lw=1)
        axes.set(xlabel="width n", ylabel=title, ymargin=0.3)
        axes.legend(fontsize=8, title="exponent in n", loc={wrong: "upper left", with_s: "center right"}.get(title))
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="rates_in_the_kernel.png", help="the figure (%(default)s)")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:70} {value:.4g}")
