"""Why the exact solution of a narrow linearised LeNet is poor: the interpolation threshold.

    python3 make.py python examples/interpolation_threshold.py [--out DIR]

In Samarin et al. 2022, tables 1 and 2, the network of width 1 has P = 60,941 weights for N = 60,000 equations.  Least
squares is worst where it can just fit every example, N = rank J (double descent): there, more examples hurt.  Here the
paper's P / N = 1.016 is that of a small LeNet on up to 867 digits, compared with twice its width.  At width 1 the
accuracy dips where N passes the rank of J, about two thirds of P because of dead and redundant units; at width 2 it
always rises.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Found, Source, command_line, finish, interval, percent
from exact_linearised_lenet import accuracies, examples, reduced, rows

import minintk as mn

Curves = dict[str, dict[int, tuple[float, float]]]


def curves(data: Source, n_train: int, shift: int, seeds: int, widths: tuple[int, ...]) -> Curves:
    """{"x1": {N: test accuracy of the solver}, ...} for N / 8 to N images, and under "rank" that of J at width 1."""
    sizes = [n_train * k // 8 for k in (1, 2, 4, 6, 8)]
    found: dict[str, dict[int, list[float]]] = {f"x{w}": {N: [] for N in sizes} for w in widths}
    found["rank"] = {n_train: []}
    for seed in range(seeds):
        x, y, *test = examples(data, n_train, "laptop", shift, seed)
        for width in widths:
            for N in sizes:
                score = accuracies((x[:N], y[:N], *test), width, seed, 0, "laptop")["solver, test"]
                found[f"x{width}"][N].append(score)
        net = mn.Network(reduced(1), x.shape[1:], mn.PyTorch())
        J = rows(net, net.init(np.random.default_rng(seed)), x)
        found["rank"][n_train].append(float(np.linalg.matrix_rank(J)))
    return {name: {N: interval(values) for N, values in by.items()} for name, by in found.items()}


def main(
    out: str | None = None, data: Source = None, scale: str = "laptop", widths: tuple[int, ...] = (1, 2),
    shifts: tuple[int, ...] = (0, 2), n_train: int = 867, seeds: int = 16,
) -> Found:  # fmt: skip
    """Test accuracy against the number of images at each width, on the packaged digits at every scale."""
    found: Found = {"table": []}
    for shift in shifts:
        found[f"shifts up to {shift}"] = by = curves(None, n_train, shift, seeds, widths)
        rank = by["rank"][n_train]
        for name in (f"x{w}" for w in widths):
            ours = "; ".join(f"{percent(value)} ({N})" for N, value in by[name].items())
            at = f"; rank J = {rank[0]:.0f} ± {rank[1]:.0f}" if name == "x1" else ""
            claim = f"exact solution at {name}, shifts up to {shift}: test accuracy (%) by number of images"
            found["table"].append((claim, "97.8 (x1) but 99.86 (x2)" if shift == 0 else "86.05, 98.7", ours + at))

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(1, len(shifts), figsize=(5.5 * len(shifts), 4), squeeze=False, layout="constrained")
        for panel, shift in zip(panels[0], shifts):
            by = found[f"shifts up to {shift}"]
            for w, style in zip(widths, ("o-", "s-", "^-")):
                N, mean, half = np.array([(N, *value) for N, value in by[f"x{w}"].items()]).T
                panel.errorbar(N, 100 * mean, 100 * half, fmt=style, capsize=3, label=f"exact solution, x{w}")
            panel.axvline(by["rank"][n_train][0], color="k", ls=":", label="N = rank J at x1")
            panel.set(xscale="log", xlabel="training images", title=f"8 x 8 digits, shifts up to {shift} pixels")
            panel.set_xticks(N, [f"{n:g}" for n in N])
            panel.minorticks_off()
        panels[0, 0].set_ylabel(f"test accuracy, %; 95 % intervals, {seeds} seeds")
        panels[0, 0].legend()

    return finish(out, "interpolation_threshold", found, draw)


if __name__ == "__main__":
    command_line(main, __doc__, "interpolation_threshold")
