"""What a network has learned is in its final kernel  (Geiger et al. 2020, figure 5 and appendix C).

    python3 make.py python examples/frozen_final_kernel.py [--out DIR] [--data DIR]

Train a network, take its final tangent kernel, freeze it, and learn with it again in function space, from f = 0.  The
claim: the frozen final kernel performs like the network.  The frozen initial kernel gives what the lazy network learns,
sqrt(h) alpha -> infinity; in the feature regime this differs from what the network learns.  Both kernels are drawn with
the digits sorted by class.

Laptop: 200 of the 8 x 8 digits, L = 2.  --scale paper: 5,000 of MNIST, L = 5, on a GPU (figure 5's own networks are
residual ones on CIFAR-10).
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

import numpy as np
from common import Found, Source, command_line, finish, percent, placed, tested
from geiger import HIGH, digits, in_widths, network, trained

import minintk as mn
from minintk.arrays import array_namespace, to_host
from minintk.diagnostics import draw_gram, relative_distance, target_alignment

REGIMES = {"feature": 0.1, "alpha = 1": None, "lazy": 1000.0}
"""s = sqrt(h) alpha; None: alpha = 1, the paper's figure."""


def frozen(model: mn.Centred, theta: mn.Array, arrays: tuple[mn.Array, ...], high: float) -> mn.Array:
    """f on the test set, (E, M, 1), of the flow from zero with the model's kernel at theta."""
    x, y, x_test, _ = arrays
    xp = array_namespace(x)
    K = mn.ntk(model, theta, xp.concat([x, x_test]), x)
    f0 = xp.zeros((*K.shape[:-1], 1), dtype=K.dtype)
    *_, end = mn.kernel_flow(
        K, f0, y, loss=mn.Hinge(model.alpha), times=inf, mu=1000.0, by=mn.Steps(high=high)
    )  # fmt: skip
    return end.f[:, len(x) :]


def compared(
    s: float, width: int, depth: int, seeds: int, arrays: tuple[mn.Array, ...], scale: str
) -> dict[str, Any]:  # fmt: skip
    """Which test digits (E, M) the network, its frozen final and its frozen initial kernel get wrong, and distances.

    "distance": |f_frozen - f| / |f| over the test set, (E,).
    """
    x, y, x_test, y_test = arrays
    net = network(width, depth)
    theta0 = placed(scale, net.init(np.random.default_rng(width), ensemble=seeds, dtype=np.float32))[0]
    run = trained(net, theta0, s / sqrt(width), x, y, high=HIGH[scale])
    f = run.model(run.theta, x_test)
    others = {
        "last": frozen(run.model, run.theta, arrays, HIGH[scale]),
        "first": frozen(run.model, theta0, arrays, HIGH[scale]),
    }
    found: dict[str, Any] = {
        "distance": {name: to_host(relative_distance(g, f)).astype(float) for name, g in others.items()},
        "wrong": {n: (to_host(g * y_test)[..., 0] <= 0) * 1.0 for n, g in {"network": f, **others}.items()},
    }
    few = x_test[:200]
    kernels = {n: mn.ntk(net, t, few) for n, t in (("first", theta0), ("last", run.theta))}
    found["alignment"] = {n: to_host(target_alignment(k, y_test[:200])).astype(float) for n, k in kernels.items()}
    found["kernels"] = {n: to_host(k[0]) for n, k in kernels.items()}
    return found


def main(
    out: str | None = None, data: Source = None, scale: str = "laptop", widths: tuple[int, ...] = (32, 64, 128),
    depth: int = 2, seeds: int = 5, n_train: int = 200,
) -> Found:  # fmt: skip
    """Test errors of the network minus those of its frozen kernels, by regime and width; draws figure 5."""
    if scale == "paper":
        widths, depth, seeds = (30, 100, 300), 5, 10
    (x, y), (x_test, y_test) = digits(data, n_train, 1500, scale)
    arrays = placed(scale, x, y, x_test, y_test)
    cells = {
        (name, h): compared(sqrt(h) if s is None else s, h, depth, seeds, arrays, scale)
        for name, s in REGIMES.items() for h in widths
    }  # fmt: skip
    behind = {
        (name, which): [tested(cells[name, h]["wrong"][which] - cells[name, h]["wrong"]["network"]) for h in widths]
        for name in REGIMES for which in ("last", "first")
    }  # fmt: skip
    away = {
        (name, which): [float(np.mean(cells[name, h]["distance"][which])) for h in widths]
        for name in REGIMES for which in ("last", "first")
    }  # fmt: skip

    def each(values: list[tuple[float, float]]) -> str:
        return ", ".join(f"{percent(v)} (h = {h})" for h, v in zip(widths, values))

    def shares(values: list[float]) -> str:
        return ", ".join(f"{100 * v:.2g} % (h = {h})" for h, v in zip(widths, values))

    table: list[tuple[str, str, str]] = [
        *((f"frozen last kernel - network, {n}, test error (points)", "0", each(behind[n, "last"])) for n in REGIMES),
        *((f"frozen first kernel - network, {n}, test error (points)", said, each(behind[n, "first"]))
          for n, said in zip(REGIMES, ("> 0", "> 0", "0"))),
        ("|f_frozen first - f| / |f|, lazy regime", "-> 0", shares(away["lazy", "first"])),
        ("|f_frozen first - f| / |f|, feature regime", "stays", shares(away["feature", "first"])),
        ("|f_frozen last - f| / |f|, feature regime", "-", shares(away["feature", "last"])),
    ]  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(1, 4, figsize=(14, 3.7), layout="constrained")
        labels = (to_host(y_test)[:200, 0] < 0).astype(int)
        for axes, which in zip(panels, ("first", "last")):
            draw_gram(cells["feature", widths[-1]]["kernels"][which], labels, axes)
            axes.set(title=f"{which} kernel, feature regime, h = {widths[-1]}", xlabel="even, then odd test digits")
        for axes, name in zip(panels[2:], ("alpha = 1", "feature")):
            for i, (which, style) in enumerate((("network", "o-"), ("last", "s-"), ("first", "^-"))):
                mean, half = 100 * np.array([tested(cells[name, h]["wrong"][which]) for h in widths]).T
                label = which if which == "network" else f"frozen {which} kernel"
                at = np.array(widths) * 1.04 ** (i - 1)
                axes.errorbar(at, mean, half, fmt=f"C{i}{style}", capsize=2, ms=4, lw=1, label=label)
            axes.set(ylabel="test error, %", title=name)
            in_widths(axes, widths)
            axes.legend(fontsize=8)

    return finish(out, "frozen_final_kernel", {
        "widths": widths, "table": table,
        "behind": {f"{n}, {w}": v for (n, w), v in behind.items()},
        "distance": {f"{n}, {w}": v for (n, w), v in away.items()},
        "error": {f"{n}, {h}, {w}": tested(v) for (n, h), c in cells.items() for w, v in c["wrong"].items()},
        "alignment": {
            f"{n}, {h}, {w}": float(v.mean()) for (n, h), c in cells.items() for w, v in c["alignment"].items()
        },
    }, draw)  # fmt: skip


if __name__ == "__main__":
    command_line(main, __doc__, "frozen_final_kernel")
