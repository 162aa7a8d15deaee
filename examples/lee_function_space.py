"""Train with a network's frozen kernel, with momentum and with cross-entropy: Lee et al. 2019, section 2.5.

    python3 make.py python examples/lee_function_space.py [--out DIR] [--data DIR] [--scale evening]

Networks with two hidden ReLU layers, sigma_w^2 = 2 and sigma_b^2 = .1, learn to classify the ten digits on full
batches.  A network's initial tangent kernel determines the linearisation, and determines the network's own outputs up
to an error that decreases with width:

    squared loss, momentum m    the heavy ball in closed form, a 2 x 2 matrix to the power t for each eigenvalue
    its limit lr -> 0           tau f'' + f' = -Theta grad L with tau = lr / (1 - m)^2, at time lr steps / (1 - m)
    cross-entropy               the differential equation f' = -Theta (softmax(f) - y) / N, at time lr steps
    cross-entropy in batches    descent on the coefficients a in f = f_0 + Theta a, `mn.kernel_descent`

We compare training with these predictions on test points.  The first and the third are also computed from the kernel of
the infinitely wide network.  At fixed tau, 1 - m falls as lr^(1/2), and so does the distance between discrete steps and
the flow.  Without momentum this distance falls as lr.  The control is gradient descent in closed form at the rate lr /
(1 - m), which is the effective rate of momentum late in training.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, interval, plus
from lee import exponent, rms, words
from lee_training import Frozen, against_width, by_width, marks
from verdicts import EXPONENT, at_most, below, factors_above, near, sure

import minintk as mn

SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (64, 256, 1024), "steps": 200, "seeds": 3, "n": 40},
    "evening": {"widths": (64, 256, 1024), "steps": 300, "seeds": 3, "n": 64},
    "paper": {"widths": (128, 512, 2048), "steps": 4000, "seeds": 10, "n": 128},
}
MOMENTUM, SHARE, STEP = 0.9, 0.04, 0.1
"""The momentum, and the rates as fractions of the largest stable rate, with momentum (SHARE) and without (STEP).  At
the rate with momentum, the control must also be stable."""


def heavy_ball(data: str, width: int, n: int, steps: int, seed: int) -> dict[str, Any]:
    """Train with momentum on the squared loss, and compare the network and its linearisation with the closed form.

    Also compare the closed form at three rates with the flow.
    """
    p, at = Frozen(data, width, n, seed, MOMENTUM, zero_mean=True), marks(steps)
    lr, few = SHARE * p.bound, at[: len(at) // 2]
    form, limit = (p.closed(kernel, at, lr, MOMENTUM) for kernel in (p.kernel, p.limit))
    lin = p.trained(mn.Linearized(p.net, p.theta0), few, mn.mse, lr, MOMENTUM)
    net = p.trained(p.net, at, mn.mse, lr, MOMENTUM)
    plain = p.closed(p.kernel, at, lr / (1 - MOMENTUM))
    tau, t = lr / (1 - MOMENTUM) ** 2, steps // 8
    flow = p.flow(p.kernel, [lr * t / (1 - MOMENTUM)], mn.mse, tau)
    rates = [p.closed(p.kernel, [t * j], lr / j**2, 1 - (1 - MOMENTUM) / j) for j in (1, 2, 4)]  # equal tau, final time
    return {
        "distance": rms(net - form, (1, 2)).tolist(), "limit": float(rms((net - limit)[-1])),
        "linearised": float(abs(lin - form[: len(few)]).max() / abs(form).max()),
        "flow": [float(rms(f - flow)) for f in rates], "control": float(rms(net - plain)),
        "all": float(rms(net - form)), "f": net[:, 0].tolist(), "theory": form[:, 0].tolist(),
    }  # fmt: skip


def cross_entropy(data: str, width: int, n: int, steps: int, seed: int) -> dict[str, Any]:
    """Compare gradient descent on cross-entropy with the flow, for the network and for its linearisation.

    The linearisation is trained at two rates.  With momentum on batches, it is compared with `on_kernel`.
    """
    p, at, loss = Frozen(data, width, n, seed, 0.0, zero_mean=False), marks(steps), mn.softmax_cross_entropy
    lr, few = STEP * p.bound, at[: len(at) // 2]
    flow, limit = (p.flow(k, lr * np.array(at), loss) for k in (p.kernel, p.limit))
    net, lin = p.trained(p.net, at, loss, lr), mn.Linearized(p.net, p.theta0)
    fast = (loss, 0.1 * lr, MOMENTUM, 8)
    same, kept = p.trained(lin, [few[-1]], *fast)[-1], on_kernel(p, few[-1], *fast)
    off = [p.trained(lin, [j * few[-1]], loss, lr / j)[-1] - flow[len(few) - 1] for j in (1, 2)]
    return {
        "distance": rms(net - flow, (1, 2)).tolist(), "limit": float(rms((net - limit)[-1])),
        "flow": [float(rms(a)) for a in off], "f": net[:, 0].tolist(), "theory": flow[:, 0].tolist(),
        "linearised": float(abs(same - kept).max() / abs(kept).max()),
    }  # fmt: skip


def on_kernel(p: Frozen, steps: int, loss: mn.Loss, lr: float, momentum: float, batch: int) -> Any:
    """Train in function space with the kernel of `p` on the batches of `Frozen.trained`; return the test outputs."""
    how: dict[str, Any] = {
        "loss": loss,
        "optimizer": mn.SGD(lr, momentum=momentum),
        "steps": steps,
        "batch_size": batch,
    }
    *_, end = mn.kernel_descent(p.kernel, p.f0, p.y, rng=np.random.default_rng(0), **how)
    return end.f[len(p.x) :]


def main(s: Setting, widths: tuple[int, ...], steps: int, seeds: int, n: int) -> Found:
    """Return the distances between training and theory at each width, and between discrete training and the flows.

    Plot outputs and distances.
    """
    grid = {"width": widths, "seed": range(seeds)}
    ball, cross = (s.sweep(work, grid, data=s.data, n=n, steps=steps) for work in (heavy_ball, cross_entropy))
    tables = {"heavy ball": (ball, "closed form", 0.5), "cross-entropy": (cross, "flow of its kernel", 1.0)}
    size = f"{n} images, 100 test, {steps} steps"
    how: dict[str, Any] = {"of": "seeds", "seeds": seeds, "size": size}
    exact, steps_on = (float(table["linearised"].max()) for table in (ball, cross))
    control = np.log(ball["control"] / ball["all"])[-1]
    rows = [
        Row("heavy ball in closed form and training the linearisation: largest relative difference", "equal",
            f"{exact:.0e}", agrees=sure(exact < 1e-10, "< 1e-10"), size=size, seeds=seeds),
        Row("cross-entropy, momentum, batches of 8: steps on the kernel and training the linearisation, the same",
            "equal", f"{steps_on:.0e}", agrees=sure(steps_on < 1e-10, "< 1e-10"), size=size, seeds=seeds),
        Row("control: network from the closed form without momentum / from the one with it", "> 1",
            factor(control), agrees=factors_above([interval(control)]), why="open", **how),
    ]  # fmt: skip
    found: Found = {"widths": widths, "exact": [exact, steps_on], "control": control.tolist()}
    for name, (table, theory, power) in tables.items():
        far = table["distance"][..., -1]
        fit, nearer = exponent(widths, far), np.log(table["limit"] / far).mean(0)
        order = interval(np.log2(table["flow"][..., -2] / table["flow"][..., -1]).mean(0) * power)
        found[name] = {"distance": far.tolist(), "exponent": fit, "nearer": nearer.tolist(), "order": order}
        rows += [
            Row(f"{name}: rms of network - {theory}, test, at the end, by width", "falls", by_width(widths, far),
                agrees=below([fit]), why="open", **how),
            Row(f"{name}: the same ~ width^b: b", "at most -1/2 (theorem 2.1)", words(fit),
                agrees=at_most([fit], -0.5), why="open", **how),
            Row(f"{name}: distance to the infinite network's kernel / to its own, all widths", "> 1 (figure 3)",
                factor(nearer), agrees=factors_above([interval(nearer)]), why="open", **how),
            Row(f"{name}: |steps - flow| of the linearisation ~ lr^p: p", f"{power:g}, derived here", plus(order),
                agrees=near([order], power, EXPONENT), why="open", **how),
        ]  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(2, 2, figsize=(10, 7.5), layout="constrained")
        for row, (name, (table, _, _)) in zip(panels, tables.items()):
            net = row[0].plot(marks(steps), table["f"][-1, 0][:, :5], "o-", ms=3)
            theory = row[0].plot(marks(steps), table["theory"][-1, 0][:, :5], "k--")
            row[0].legend([net[0], theory[0]], [f"network of width {widths[-1]}", "from its kernel at the start"])
            row[0].set(xscale="log", xlabel="steps", title=f"{name}: outputs at a test image")
            against_width(row[1], widths, table["distance"][..., -1], f"b = {words(found[name]['exponent'])}")
            row[1].set_title(f"{name}: rms of network - theory, test")

    return finish(s, found, rows, draw)


def factor(logs: Any) -> str:
    """Format the geometric mean of factors and its interval over seeds, given the factors' logarithms."""
    mean, half, *_ = interval(logs)
    return "{:.2g} ({:.2g} to {:.2g})".format(*np.exp([mean, mean - half, mean + half]))


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "lee_function_space")
