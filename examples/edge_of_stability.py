"""Show the edge of stability: in full-batch gradient descent the sharpness rises to 2 / lr and stays there.

    python3 make.py python examples/edge_of_stability.py [--out FILE.png]

A tanh network learns 200 digits by gradient descent with learning rates of 2 / (1.5 s), 2 / (2 s) and 2 / (3 s).  Here
s is the initial sharpness, the largest eigenvalue of the loss's Hessian (`mn.diagnostics.sharpness`).  Gradient descent
cannot converge to a minimum that is sharper than 2 / lr.  The sharpness grows until lr x sharpness = 2.  From then on
the loss still falls, but not monotonically (Cohen et al. 2021).  At the small rate 2 / (20 s) the sharpness rises above
the values 2 / lr of the three other rates.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import minintk as mn
from minintk.diagnostics import sharpness

FRACTIONS, SLOW = (1.5, 2, 3), 20
Host = np.ndarray[Any, Any]


def data(n: int) -> tuple[Host, Host]:
    """Return n centred digits scaled to unit mean square, and their classes as one-hot rows."""
    digits = mn.datasets.digits().subset(n, np.random.default_rng(0))
    x = digits.x.reshape((n, -1)) - digits.x.reshape((n, -1)).mean(axis=0)
    return x / np.sqrt(np.mean(x**2)), np.eye(10)[digits.labels]


def path(fraction: float, n: int, width: int, steps: int, seed: int = 1) -> tuple[float, Host]:
    """Train at lr = 2 / (`fraction` s); return lr and (step, lr x sharpness, loss) at step 0 and forty later steps."""
    x, y = data(n)
    dense = [mn.Dense(w, b_std=0.1) for w in (width, width, 10)]
    net = mn.Network(mn.Sequential(dense[0], mn.Tanh(), dense[1], mn.Tanh(), dense[2]), (64,), mn.PyTorch())
    theta = net.init(np.random.default_rng(seed))
    lr = 2 / (fraction * sharpness(net, theta, x, y, loss=mn.mse))
    rows = []
    for snap in mn.train(net, theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=lr), steps=steps, every=steps // 40):
        at = sharpness(net, snap.theta, x, y, loss=mn.mse, rtol=1e-3)
        rows.append((snap.step, lr * at, float(snap.loss)))
    return lr, np.array(rows)


def main(out: str | None = None, n: int = 200, width: int = 64, steps: int = 4000) -> dict[str, float]:
    """Return each run's lr x sharpness, at the start and in the second half, and its loss, halfway and at the end."""
    results, runs = dict[str, float](), {}
    for fraction in (*FRACTIONS, SLOW):
        _, rows = runs[fraction] = path(fraction, n, width, steps)
        name, late = f"lr = 2 / ({fraction} s)", rows[len(rows) // 2 :]
        results |= {f"{name}: at the start": rows[0, 1], f"{name}: mean of the last half": late[:, 1].mean()}
        results |= {f"{name}: least": late[:, 1].min(), f"{name}: largest": late[:, 1].max()}
        results |= {f"{name}: loss at half time": late[0, 2], f"{name}: loss at the end": late[-1, 2]}
    if out:
        draw(out, runs)
    return results


def draw(out: str, runs: dict[float, tuple[float, Host]]) -> None:
    """Plot each run's sharpness and loss against the steps, and the lines 2 / lr of all runs except the slow one."""
    import matplotlib.pyplot as plt

    from analytic.verify.figures import MARKERS

    plt.style.use("analytic.verify.look")
    figure, (above, below) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for i, (fraction, (lr, rows)) in enumerate(runs.items()):
        label = f"lr = {lr:.3f} = 2 / ({fraction} s)"
        above.plot(rows[:, 0], rows[:, 1] / lr, f"C{i}{MARKERS[i]}-", markersize=4, linewidth=1, label=label)
        if fraction != SLOW:
            above.axhline(2 / lr, color=f"C{i}", linestyle="--", linewidth=1)
        below.semilogy(rows[:, 0], rows[:, 2], f"C{i}{MARKERS[i]}-", markersize=4, linewidth=1, label=label)
    above.set(xlabel="step", ylabel="sharpness (dashed: 2 / lr)")
    below.set(xlabel="step", ylabel="loss")
    above.legend(fontsize=8)
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="edge_of_stability.png", help="the figure (%(default)s)")
    print("lr x sharpness; theory: 2 in the last half, but for the slow run")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:40} {value:.4g}")
