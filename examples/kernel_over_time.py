"""Follow the tangent kernel during training: it is fixed in the lazy regime and rotates in the feature regime.

    python3 make.py python examples/kernel_over_time.py [--out FILE.png] [--data DIR]

The model alpha (f - f_0), where f has two hidden layers of width h, learns the parity of digits by a momentum flow
until every digit has a margin of 1.  At s = sqrt(h) alpha = 100 the kernel, its eigenvectors and its alignment with the
labels hardly change.  At s = .1 the weights must grow to fit the labels.  The kernel rotates towards the labels until
most digits are learned, and then away from the labels.  While it rotates away, the kernel's effective rank grows, and
the first layer dominates the kernel's trace.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

import minintk as mn
from minintk.diagnostics import KernelPath, kernel_over_time, t1

REGIMES = {"lazy": 100.0, "feature": 0.1}  # s = sqrt(h) alpha


def path(s: float, width: int, networks: int, x: mn.Array, y: mn.Array) -> KernelPath:
    """Train `networks` networks by momentum flow, and record their tangent kernels at 4 times per decade.

    Times are in units of t1, the time at which the loss halves.
    """
    hidden = [mn.Dense(width, b_std=1.0, b_init="zeros"), mn.Softplus(5.0, 1.404383)]
    net = mn.Network(mn.Sequential(*hidden, *hidden, mn.Dense(1, b_std=1.0, b_init="zeros")), x.shape[1:])
    theta0, alpha = net.init(np.random.default_rng(0), ensemble=networks), s / sqrt(width)
    losses: list[tuple[float, Any]] = []

    def moments() -> Any:
        times = np.geomspace(1e-5, 1e7, 97)
        run = mn.flow(mn.Centred(net, theta0, alpha), theta0, x, y, loss=mn.Hinge(alpha), times=times, mu=1000.0)
        for i, moment in enumerate(run):
            losses.append((moment.t, moment.loss))
            if i % 2 == 0 or moment.ended:
                yield moment
            if moment.ended:
                return
        raise RuntimeError(f"width {width} is too narrow: some of the {len(x)} digits are still not learned at t = 1e7")

    found = kernel_over_time(net, moments(), x, y)
    halved = t1(*map(np.array, zip(*losses, strict=True)))
    return replace(found, t=found.t / float(np.median(halved)))


def draw(panels: Any, p: KernelPath, name: str) -> None:
    """Plot the kernel's movement, alignment, rank and overlap, and the layers' shares, averaged over networks."""
    titles = "movement of the kernel", "alignment with the labels", "effective rank", "overlap of the top eigenvectors"
    lines = [*zip(panels, titles, [name] * 4, (p.movement, p.alignment, p.effective_rank, p.overlap[..., -1]))]
    lines += [(panels[-1], f"share of the trace, {name}", f"layer {layer}", share) for layer, share in p.share.items()]
    for panel, title, label, values in lines:
        panel.plot(p.t, values.mean(axis=1), ".-", ms=4, lw=1, label=label)
        panel.set(xscale="log", xlabel="t / time at which the loss halves", xlim=(1e-2, None), title=title)
        panel.legend(fontsize=7)


def main(
    out: str | None = None, data: str | None = None, width: int = 128, networks: int = 4, n: int = 100
) -> dict[str, float]:
    """Return the final movement and overlap of the kernel in both regimes.

    Also return the first, largest and last values of the alignment, the rank and the first layer's share of the trace.
    """
    digits = mn.datasets.mnist(data) if data else mn.datasets.digits()
    x, y = digits.subset(n, np.random.default_rng(0)).pca(10).parity()
    paths = {name: path(s, width, networks, x, y) for name, s in REGIMES.items()}
    found = dict[str, Any]()
    for name, p in paths.items():
        found |= {f"{name}: movement": p.movement[-1].mean(), f"{name}: overlap": p.overlap[-1, :, -1].mean()}
        for what, values in (("alignment", p.alignment), ("rank", p.effective_rank), ("first layer", p.share["0"])):
            mean = values.mean(axis=1)
            three = zip(("first", "largest", "last"), (mean[0], mean.max(), mean[-1]), strict=True)
            found |= {f"{name}: {what}, {when}": of for when, of in three}
    if out:
        import matplotlib.pyplot as plt

        with plt.style.context("analytic.verify.look"):
            figure, panels = plt.subplots(2, 3, figsize=(12, 6.4), layout="constrained")
            *both, lazy, feature = panels.ravel()
            for name, p in paths.items():
                draw([*both, lazy if name == "lazy" else feature], p, name)
            both[0].set(yscale="log", ylim=(1e-3, None))
            plt.setp([lazy, feature], ylim=(0, 1))
            figure.savefig(out, dpi=120)
            plt.close(figure)
    return {name: float(value) for name, value in found.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="kernel_over_time.png", metavar="FILE.png", help="the figure")
    parser.add_argument("--data", metavar="DIR", help="folder with MNIST; without it, the digits inside the package")
    args = parser.parse_args()
    for name, value in main(args.out, args.data).items():
        print(f"{name:30} {value:.4g}")
