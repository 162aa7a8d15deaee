"""Compare outputs, weights and losses of networks with their linearisations: Lee et al. 2019, figure 3.

    python3 make.py python examples/lee_linearisation.py [--out DIR] [--data DIR --set cifar10]

Networks with five hidden ReLU layers (sigma_w^2 = 2, sigma_b^2 = .1) learn a binary task by full-batch descent.  The
classes are horses and aeroplanes of CIFAR-10, or even and odd digits.  Eqs. (8) to (11) predict weights and outputs
from the network's initial tangent kernel.  The analytic kernel also predicts the outputs, but less accurately.  At
width n, the initial kernel differs from the analytic kernel by O(n^(-1/2)), and changes by less during training.

The weights follow their linearisation less closely than the outputs do.  Training changes the sign of a fraction of
order n^(-1/2) of the ReLU units' inputs, and each such unit changes its entire part of the Jacobian.  The relative
change of the Jacobian is therefore of order n^(-1/4), and so is the deviation of the weights.  The paper's theorem
states n^(-1/2) and assumes smooth activations.  For two layers, 16 digits and n = 256 to 2048, the deviations of
Jacobian and weights have the exponents -.33 and -.30 +- .09 for ReLU, and -.51 and -.51 +- .10 for tanh.

The paper's rate eta = .01 is stable for the mean over the examples (the bound is .38 for 256 images), but not for the
sum (the bound is .0015).  The sizes "small" and "evening" take fewer steps at a larger rate.  The closed form is valid
at any stable rate.
"""

from __future__ import annotations

from typing import Any

import lee
import numpy as np
from common import Found, Row, Setting, command_line, finish, interval, plus
from verdicts import EXPONENT, LOSS, RATIO, at_most, below, factors_above, near

import analytic as an
import minintk as mn
from minintk.arrays import to_host

SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (128, 256, 512), "seeds": 5, "n_train": 64, "steps": 64, "eta": 0.1},
    "evening": {"widths": (128, 256, 512, 1024), "seeds": 3, "n_train": 256, "steps": 256, "eta": 0.1},
    "paper": {"widths": (512, 2048, 8192), "seeds": 5, "n_train": 256, "steps": 2**17, "eta": 0.01},
}
B_STD, N_TEST, SHOWN = 0.1**0.5, 64, 6
KINDS = ("empirical", "analytic")


def work(
    data: str, n_train: int, steps: int, eta: float, width: int, seed: tuple[int, ...], phi: str = "relu"
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the network's distances from the predictions of both kernels after 0, 1, 2, 4, ... steps.

    Also return the curves for the figure.
    """
    x, y, x_test, y_test = lee.problem(data, "binary", n_train, N_TEST)
    points, at, N = np.concatenate([x, x_test]), lee.powers(steps), len(x)
    net = mn.Network(lee.spec(phi, 5, width, b_std=B_STD), x.shape[1:])
    limit = an.kernel(lee.spec(phi, 5, 1, b_std=B_STD)).ntk(points, x)
    theta0, targets, found = lee.start(net, seed), np.concatenate([y, y_test])[:, 0], []
    rng, tensors = np.random.default_rng(0), [at for name, at in net.layout.slices.items() if name.endswith(".W")]
    which = [int(rng.integers(part.start, part.stop)) for part in tensors]  # one weight in each of the SHOWN layers
    for first in theta0:
        theta = lee.double(first)
        _, J = net.linearize(theta, *lee.like(theta, x))
        kernels = {"empirical": to_host(mn.ntk(net, theta, *lee.like(theta, points, x))), "analytic": limit}
        own = {name: an.gradient_descent((k[:N] + k[:N].T) / 2, y, lr=eta) for name, k in kernels.items()}
        start = lee.outputs(net, theta, points)
        says = {name: own[name].predict(np.array(at), k, start[:N], start)[..., 0] for name, k in kernels.items()}
        coefficients = own["empirical"].coefficients(np.array(at), start[:N])
        moves = dict(zip(at, coefficients))

        def read(snap: mn.Snapshot, first: Any = first, J: Any = J, theta: Any = theta, moves: Any = moves) -> Any:
            moved, linear = to_host(snap.theta - first), to_host(J.vjp(*lee.like(theta, moves[snap.step])))
            away = float(lee.rms(moved - linear) / lee.rms(linear)) if snap.step else 0.0
            return lee.outputs(net, snap.theta, points)[:, 0], (away, *moved[which], *linear[which])

        f, weights = zip(*lee.at_steps(net, first, x, y, eta, at, read))
        result: dict[str, Any] = {"weights": weights, "f": f, "says": says["empirical"]}
        for where, part in (("train", slice(N)), ("test", slice(N, None))):
            losses = [
                0.5 * np.mean((g[..., part] - targets[part]) ** 2, axis=-1) for g in (np.array(f), *says.values())
            ]
            result[f"loss, {where}"] = losses  # (3, T): the network, then the two predictions
        for name in KINDS:
            result[name] = lee.rms((np.array(f) - says[name])[:, N:], axis=-1)
        found.append(result)
    return found


def main(s: Setting, widths: tuple[int, ...], seeds: int, n_train: int, steps: int, eta: float) -> Found:
    """Return the network's distance from each prediction for each width, with intervals, and plot four panels."""
    at, n = lee.powers(steps), np.array(widths)
    how: dict[str, Any] = {"data": s.data, "n_train": n_train, "steps": steps, "eta": eta}
    runs = s.sweep(work, {"width": widths, "seed": range(seeds)}, together="seed", batch=1, **how)
    some = widths[: max(2, len(widths) - 1)]
    tanh = s.sweep(work, {"width": some, "seed": range(seeds)}, together="seed", batch=1, phi="tanh", **how)
    x = lee.problem(s.data, "binary", n_train, N_TEST)[0]
    k = an.kernel(lee.spec("relu", 5, 1, b_std=B_STD)).ntk(x)
    found: Found = {"widths": widths, "steps": at, "bound": an.max_learning_rate(k)}
    sup = {name: runs[name].max(axis=-1) for name in KINDS}  # (widths, seeds)
    for name in KINDS:
        found[name] = [interval(v) for v in sup[name]]
        found[f"{name}, exponent"] = lee.exponent(widths, sup[name])
    found["ratio"] = [interval(v) for v in np.log(sup["analytic"] / sup["empirical"])]
    away = runs["weights"][..., 0].max(axis=-1)
    found["weights"] = [interval(v) for v in away]
    found["weights, exponent"] = lee.exponent(widths, away)
    found["weights, exponent, tanh"] = lee.exponent(some, tanh["weights"][..., 0].max(axis=-1))
    loss = {where: runs[f"loss, {where}"] for where in ("train", "test")}  # (widths, seeds, 3, T)
    for where, v in loss.items():
        found[f"loss, {where}"] = [interval(a) for a in np.abs(v[:, :, 0] - v[:, :, 1]).max(-1) / v[:, :, 0, 0]]
    widest, size = f"n = {widths[-1]}: ", f"{n_train} images, n = {widths[0]} to {widths[-1]}, t = {eta * steps:g}"
    factor = [lee.span(*np.exp([v[0], v[0] - v[1], v[0] + v[1]])) for v in found["ratio"]]
    exponents = [lee.words(found[f"{name}, exponent"]) for name in KINDS]
    rows = [
        Row("rms of network - linearisation on test images, largest in training", "at most n^(-1/2)",
            f"{widest}{plus(found['empirical'][-1], 3)}; ~ n^b, b = {exponents[0]}", "seeds", size, seeds,
            at_most([found["empirical, exponent"]], -0.5)),
        Row("the same from the analytic kernel", "n^(-1/2)",
            f"{widest}{plus(found['analytic'][-1], 3)}; ~ n^b, b = {exponents[1]}", "seeds", size, seeds,
            near([found["analytic, exponent"]], -0.5, EXPONENT)),
        Row("analytic over empirical kernel's error", "> 1",
            ", ".join(f"{a} (n = {w})" for a, w in zip(factor, widths)), "seeds", size, seeds,
            factors_above(found["ratio"][len(widths) // 2 :])),
        Row("|theta - theta_lin| / |theta_lin - theta_0|, largest in training: ~ n^b", "follows closely (4096)",
            f"{widest}{plus(found['weights'][-1])}; b = {lee.words(found['weights, exponent'])}", "seeds", size, seeds,
            below([found["weights"][-1]], RATIO), "open"),
        Row("the same, tanh", "at most -1/2 (smooth activations)", lee.words(found["weights, exponent, tanh"]),
            "seeds", f"{n_train} images, n = {some[0]} to {some[-1]}", seeds,
            at_most([found["weights, exponent, tanh"]], -0.5)),
        Row("loss less that of the linearisation, over the loss at the start: train, test", "follows closely",
            f"{widest}{plus(found['loss, train'][-1], 3)}, {plus(found['loss, test'][-1], 3)}", "seeds", size, seeds,
            near((found[f"loss, {where}"][-1] for where in loss), 0, LOSS), "open"),
    ]  # fmt: skip

    def draw(plt: Any) -> None:
        _, (outputs, weights, losses, errors) = plt.subplots(1, 4, figsize=(17, 4), layout="constrained")
        t = eta * np.maximum(at, 0.5)  # shows step 0 on a logarithmic axis
        f, says, w = (runs[name][-1, 0] for name in ("f", "says", "weights"))
        for i in range(SHOWN):
            j = (i // 2) if i % 2 else n_train + i // 2
            outputs.plot(t, f[:, j], f"C{i}", t, says[:, j], f"C{i}--")
            weights.plot(t, w[:, 1 + i], f"C{i}", t, w[:, 1 + SHOWN + i], f"C{i}--")
        for i, (where, v) in enumerate(loss.items()):
            for j, (style, name) in enumerate((("-", "network"), ("--", "empirical"), (":", "analytic"))):
                losses.plot(t, v[-1, 0, j], f"C{i}{style}", label=f"{where}, {name}")
        for i, name in enumerate(KINDS):
            mean, half = np.transpose([v[:2] for v in found[name]])
            errors.errorbar(n, mean, half, fmt=f"{'os'[i]}-", label=f"from the {name} kernel")
            errors.plot(n, mean[-1] * (n / n[-1]) ** -0.5, f"C{i}--", lw=1, label=None if i else "$n^{-1/2}$")
        for panel, title in ((outputs, "outputs"), (weights, "changes of weights"), (losses, "losses")):
            panel.set(xscale="log", xlabel=f"$\\eta$ x steps, n = {widths[-1]}", title=title)
        outputs.plot([], [], "k", label="network")
        outputs.plot([], [], "k--", label="eqs. (8) to (11)")
        lee.widths_axis(errors, widths)
        errors.set(yscale="log", title="largest rms error on test images")
        for panel in (outputs, losses, errors):
            panel.legend(fontsize=7)

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "lee_linearisation")
