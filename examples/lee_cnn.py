"""Compare a convolutional network with its linearisation, trained with momentum: Lee et al. 2019, figure S2.

    python3 make.py python examples/lee_cnn.py [--out DIR] [--data DIR --set cifar10] [--scale evening]

The network has three 3 x 3 convolutions with tanh, average pooling over the image and a dense layer, with sigma_w^2 = 2
and sigma_b^2 = .1.  Training uses momentum .9 and eta = .1.  The task is to distinguish horses from aeroplanes in
CIFAR-10, or even from odd digits in the packaged set.  With one output, eta is the lr of `mn.mse`.  The linearisation
is not trained.  Its outputs after any number of steps have a closed form, which `an.gradient_descent(momentum=)`
computes from the network's initial tangent kernel.

The control applies the same closed form to the kernel of a network with other random weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, interval, placed, plus
from lee import exponent, problem, rms, words
from lee_training import against_width, by_width, marks, trained
from verdicts import LOSS, at_most, below, factors_above, near

import analytic as an
import minintk as mn
from minintk.arrays import to_host

SIZES: dict[str, dict[str, Any]] = {
    "small": {"channels": (16, 32, 64, 128), "steps": 100, "seeds": 3, "n": 40},
    "evening": {"channels": (8, 16, 32, 64), "steps": 40, "seeds": 6, "n": 40},
    "paper": {"channels": (64, 128, 256, 512), "steps": 1000, "seeds": 5, "n": 128},
}
MOMENTUM, LR = 0.9, 0.1


def network(channels: int, shape: tuple[int, ...]) -> mn.Network:
    """Build a network of three tanh convolutions, the mean over the image, and a dense layer with one output."""
    how: dict[str, Any] = {"w_std": 2**0.5, "b_std": 0.1**0.5}
    body = [layer for _ in range(3) for layer in (mn.Conv2d(channels, 3, **how), mn.Tanh())]
    return mn.Network(mn.Sequential(*body, mn.GlobalAvgPool(), mn.Dense(1, **how)), shape)


def work(data: str, channels: int, n: int, steps: int, seed: int) -> dict[str, Any]:
    """Return test outputs and losses of both models after the steps `marks(steps)`, and distances of the outputs."""
    side = {"digits": (8, 8, 1), "mnist": (28, 28, 1), "cifar10": (32, 32, 3)}[data]
    x, y, x_test, y_test = (a.astype(np.float32) for a in problem(data, "binary", n, n))
    x, x_test = x.reshape(-1, *side), x_test.reshape(-1, *side)
    net, at = network(channels, side), marks(steps)
    draws = [net.init(np.random.default_rng((seed, i)), dtype=np.float32) for i in range(2)]
    theta0, another, both, points, targets, test = placed(*draws, np.concatenate([x, x_test]), x, y, x_test)
    f0 = to_host(net(theta0, both)).astype(float)

    def closed(theta: Any) -> Any:
        kernel = to_host(mn.ntk(net, theta, both, points)).astype(float)
        form = an.gradient_descent((kernel[:n] + kernel[:n].T) / 2, y.astype(float), lr=LR, momentum=MOMENTUM)
        return form.predict(np.array(at), kernel[n:], f0=f0[:n], f0_test=f0[n:])[..., 0]

    own, other = closed(theta0), closed(another)
    optimizer = mn.SGD(LR, momentum=MOMENTUM)
    losses, f = trained(net, theta0, (points, targets), test, at, loss=mn.mse, optimizer=optimizer)
    f = f[..., 0]
    return {
        "distance": rms(f - own, 1).tolist(), "moved": rms(own - f0[n:, 0], 1).tolist(),
        "control": float(rms(f - other, 1).max()), "f": f[:, :4].tolist(), "theory": own[:, :4].tolist(),
        **{key: ((g - y_test[:, 0]) ** 2 / 2).mean(1).tolist() for key, g in (("loss", f), ("lin loss", own))},
        "train": float(losses[-1]), "start": float(losses[0]),
    }  # fmt: skip


def main(s: Setting, channels: tuple[int, ...], steps: int, seeds: int, n: int) -> Found:
    """Return the largest relative differences of the models' outputs and of their test losses, by number of channels.

    Plot outputs, losses and distances.
    """
    runs = s.sweep(work, {"channels": channels, "seed": range(seeds)}, data=s.data, n=n, steps=steps)
    apart = runs["distance"].max(-1) / runs["moved"].max(-1)
    fit, control = exponent(channels, apart), runs["control"] / runs["moved"].max(-1)
    losses = 100 * abs(runs["loss"] / runs["lin loss"] - 1).max(-1)
    learned = interval(runs["train"][-1] / runs["start"][-1])
    how: dict[str, Any] = {"of": "seeds", "seeds": seeds, "size": f"{n} images, {n} test, {steps} steps"}
    rows = [
        Row("CNN, momentum: largest |f - f_lin| / largest |f_lin - f_0|, test, by channels", "falls",
            by_width(channels, apart), agrees=below([fit]), why="open", **how),
        Row("the same ~ channels^b: b", "at most -1/2 (theorem 2.1)", words(fit),
            agrees=at_most([fit], -0.5), why="open", **how),
        Row("test loss, largest |network / linearisation - 1| (%), by channels", "curves agree",
            by_width(channels, losses, 1), agrees=near([interval(losses[-1])], 0, 100 * LOSS), **how,
            why=f"{channels[-1]} channels for 512: the distance falls as in the row above, b = {words(fit)}"),
        Row(f"control: |f - f_lin| with another draw's kernel / |f_lin - f_0|, {channels[-1]} channels", "larger",
            plus(interval(control[-1])), agrees=factors_above([interval(np.log(control[-1] / apart[-1]))]),
            why="open", **how),
        Row("training loss at the end / at the start: something is learned", "falls", plus(learned),
            agrees=below([learned], 1), why="open", **how),
    ]  # fmt: skip
    found: Found = {
        "channels": channels, "exponent": fit, "distance": apart.tolist(), "control": control.tolist(),
        "loss": losses.tolist(), "learned": learned,
    }  # fmt: skip

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
        for panel, keys, title in zip(
            panels, (("f", "theory"), ("loss", "lin loss")), ("outputs at test points", "test loss")
        ):
            a, b = (runs[key][-1, 0] if key in ("f", "theory") else runs[key][-1].mean(0) for key in keys)
            net, lin = panel.plot(marks(steps), a, "o-", ms=3), panel.plot(marks(steps), b, "k--")
            panel.legend([net[0], lin[0]], ["network", "closed form"])
            panel.set(xscale="log", xlabel="steps", title=f"{title}, {channels[-1]} channels")
        against_width(panels[2], channels, apart, f"b = {words(fit)}")
        panels[2].set(xlabel="channels n", title="largest $|f - f_{lin}| / |f_{lin} - f_0|$, test")

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "lee_cnn")
