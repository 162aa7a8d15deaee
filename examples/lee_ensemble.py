"""Compare the outputs of a hundred networks with the predicted mean and variance: Lee et al. 2019, figures 2 and S1.

    python3 make.py python examples/lee_ensemble.py [--out DIR] [--data DIR]

Tanh networks (three hidden layers, sigma_w^2 = 1.5, no bias, eta = .5) learn a binary task.  Their outputs are recorded
on the line x(a) = a x_1 + (1 - a) x_2 through two training inputs of different classes.  Eqs. (14) and (15), with
powers of I - lr Theta / N in place of the exponential, give the mean and the variance after any number of steps.  If
only the top layer is trained, eqs. (22) and (23) give the mean and the variance, and the limit is the Bayesian
posterior of eq. (13).  The outputs of a single network are f_0 + A_t (y - f_0(X)) up to O(n^(-1/2)), with its own f_0
(figure S1), where A_t = Theta(x, X) Theta^-1 (I - (I - lr Theta / N)^t).

Each network has a score for the mean and a score for the variance.  The score for the mean is <f, mean> / <mean, mean>
over the line and the steps.  The score for the variance is the average of (f - mean)^2 / variance.  Both scores are 1
on average if the theory holds.  The theory neglects terms of order N / n.  If only the top layer is trained on 128
images of MNIST for 256 steps, the mean output is .84, .90 and .93 times the predicted mean at n = 128, 256 and 1024.
"""

from __future__ import annotations

from typing import Any, Literal

import lee
import numpy as np
from common import Found, Row, Setting, command_line, finish, interval, plus
from verdicts import MUCH, RATIO, below, near, sure

import analytic as an
import minintk as mn
from minintk.arrays import to_host

FINITE = "a finite width: the top layer's mean is .84, .90, .93 of theory's at n = 128, 256, 1024 (128 images of MNIST)"
SIZES: dict[str, dict[str, Any]] = {
    "small": {"width": 128, "members": 100, "n_train": 32, "steps": 256},
    "evening": {"width": 256, "members": 100, "n_train": 128, "steps": 256},
    "paper": {"width": 8192, "members": 100, "n_train": 128, "steps": 4**8},
}
KERNEL = an.kernel(lee.spec("tanh", 3, 1))
KINDS: dict[str, Literal["ntk", "nngp"]] = {"all": "ntk", "top": "nngp"}
WRONG = "all, by the top layer's theory"
MIX = np.linspace(-0.5, 1.5, 25)


def line(x: lee.Host, y: lee.Host) -> lee.Host:
    """Return the points a x_1 + (1 - a) x_2, (25, d), for each `a` in MIX.

    x_1 is the first example with y = 1, and x_2 the first with y = -1.
    """
    one, other = int(np.argmax(y[:, 0])), int(np.argmin(y[:, 0]))
    return MIX[:, None] * x[one] + (1 - MIX)[:, None] * x[other]


def work(data: str, n_train: int, width: int, steps: int, eta: float, seed: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return the outputs (T, 25) on the line after 0, 1, 4, ... steps.

    For "all", all layers are trained; for "top", only the top layer is. "own" is f_0 + A_t (y - f_0(X)).
    """
    x, y, *_ = lee.problem(data, "binary", n_train, 32)
    on, at = line(x, y), lee.powers(steps, 4)
    net = mn.Network(lee.spec("tanh", 3, width), x.shape[1:])
    theta0 = lee.start(net, seed)
    f = np.stack(
        lee.at_steps(net, theta0, x, y, eta, at, lambda snap: lee.outputs(net, snap.theta, on)[..., 0]), axis=1
    )
    one, found, k_on = an.gradient_descent(KERNEL.ntk(x), y, lr=eta), [], KERNEL.ntk(on, x)
    for e, theta in enumerate(lee.double(theta0)):
        own = one.predict(np.array(at), k_on, lee.outputs(net, theta, x), lee.outputs(net, theta, on))[..., 0]
        found.append({"all": f[e], "top": top_layer(net, theta, x, y, on, eta, at), "own": own})
    return found


def top_layer(net: mn.Network, theta: Any, x: Any, y: Any, points: Any, lr: float, at: list[int]) -> Any:
    """Return f(points), (T, M), for a network in which only the last layer is trained.

    Such a network is a linear model, and its kernel is the Gram matrix of the last layer's inputs.
    """
    trunk = mn.Network(mn.Sequential(*net.spec.layers[:-1]), x.shape[1:])
    both = [lee.TANH**2 * to_host(mn.nngp(trunk, theta[: trunk.size], *lee.like(theta, a, x))) for a in (x, points)]
    descent = an.gradient_descent((both[0] + both[0].T) / 2, y, lr=lr)
    return descent.predict(np.array(at), both[1], *(lee.outputs(net, theta, a) for a in (x, points)))[..., 0]


def scores(f: lee.Host, mean: lee.Host, sd: lee.Host) -> tuple[lee.Host, lee.Host]:
    """Return each network's scores for the mean and the variance, two arrays (E,), from the outputs f (E, T, M).

    Both scores ignore the initial outputs, and the score for the variance also ignores points where `sd` is small.
    """
    f, mean, sd = f[:, 1:], mean[1:], sd[1:]
    where = sd > 0.1 * sd.max()  # f - mean and sd vanish at training points
    return (f * mean).sum((1, 2)) / (mean**2).sum(), np.mean((((f - mean) / sd) ** 2)[:, where], axis=1)


def main(s: Setting, width: int, members: int, n_train: int, steps: int, eta: float = 0.5) -> Found:
    """Return the scores for the mean and the variance, with intervals over networks.

    Plot figures 2 and S1.
    """
    x, y, *_ = lee.problem(s.data, "binary", n_train, 32)
    at = lee.powers(steps, 4)
    runs = s.sweep(
        work, {"seed": range(members)}, together="seed", batch=20, data=s.data, n_train=n_train, width=width,
        steps=steps, eta=eta,
    )  # fmt: skip
    f = {name: runs[name] for name in ("all", "top", "own")}  # (E, T, M)
    ensemble = an.ensemble(KERNEL, x, y, lr=eta, by="descent")
    says = {}
    for name, kind in KINDS.items():
        mean, sd = ensemble.predict(line(x, y), t=np.array(at), kind=kind, std=True)
        says[name] = mean[..., 0], sd  # (T, M)
    found: Found = {"steps": at, "bound": an.max_learning_rate(KERNEL.ntk(x))}
    for name, by in (("all", "all"), ("top", "top"), ("all", "top")):
        key = name if name == by else WRONG
        found[key] = {part: interval(v) for part, v in zip(("mean", "variance"), scores(f[name], *says[by]))}
    off, wrong = (
        lee.rms((f["all"] - g)[:, 1:], axis=(1, 2)) / lee.rms(says["all"][1][1:]) for g in (f["own"], says["all"][0])
    )
    found["one network"], found["without its start"], found["of both"] = map(interval, (off, wrong, off / wrong))
    limits = [an.posterior(KERNEL, x, y, kind=kind).predict(line(x, y), std=True) for kind in KINDS.values()]
    found["limits"] = [(mean[:, 0].tolist(), sd.tolist()) for mean, sd in limits]
    apart = np.abs(np.subtract(*found["limits"])).max(axis=-1)
    size = f"{n_train} images, width {width}, {at[1]} to {steps} steps"

    def row(claim: str, paper: str, key: str, equal: bool = True) -> Row:
        same = near(found[key].values(), 1, RATIO)
        ours = ", ".join(f"{part} {plus(v)}" for part, v in found[key].items())
        why = {"all": "open", "top": FINITE}.get(key, "")
        return Row(claim, paper, ours, "seeds", size, members, same if equal else ~same, why)

    rows = [
        row("all layers trained, over eqs. (14), (15) in steps", "1, 1", "all"),
        row("the top layer alone trained, over eqs. (22), (23) in steps", "1, 1", "top"),
        row("all layers trained, over the top layer's theory at the same steps", "not 1, 1", WRONG, False),
        Row("one network from f_0 + A_t (y - f_0), in standard deviations of the ensemble (figure S1)", "small",
            f"{plus(found['one network'])}; from the mean {plus(found['without its start'])}", "seeds", size, members,
            below([found["of both"]], MUCH), "open"),
        Row("limits, NTK (16) less NNGP (13), largest on the line", "similar, noticeably different",
            f"mean {apart[0]:.2f}, standard deviation {apart[1]:.2f}", "", f"{n_train} images, theory", None,
            sure(apart[0] > 0.05, "mean > 0.05")),
    ]  # fmt: skip

    def draw(plt: Any) -> None:
        shown = [0, *range(max(1, len(at) - 3), len(at))]
        _, panels = plt.subplots(2, 4, figsize=(14, 6.6), sharex=True, sharey=True, layout="constrained")
        for j, i in enumerate(shown):
            upper, lower = panels[:, j]
            for name, colour, text in (("all", "C0", "eqs. (14), (15)"), ("top", "C1", "top layer, (22), (23)")):
                mean, sd = says[name][0][i], says[name][1][i]
                upper.fill_between(MIX, mean - 2 * sd, mean + 2 * sd, color=colour, alpha=0.2, label=text)
                upper.plot(MIX, mean, f"{colour}--", lw=1)
            mean, sd = f["all"][:, i].mean(0), f["all"][:, i].std(0, ddof=1)
            upper.plot(MIX, mean, "k", lw=1, label=f"{members} networks, ± 2 sd")
            upper.plot(MIX, mean - 2 * sd, "k:", MIX, mean + 2 * sd, "k:", lw=1)
            for e in range(5):
                lower.plot(MIX, f["all"][e, i], f"C{e}", lw=1, label=None if e else "five networks")
                lower.plot(MIX, f["own"][e, i], f"C{e}--", lw=1, label=None if e else "each predicted from its start")
            for panel in (upper, lower):
                panel.plot([0, 1], [-1, 1], "ko", ms=4)
            upper.set(title=f"{at[i]} steps of {eta:g}")
            lower.set(xlabel="a, from one training input to another")
        mean, sd = np.array(found["limits"][1])
        panels[0, -1].plot(MIX, mean - 2 * sd, "C3-.", lw=1, label="posterior (13), ± 2 sd")
        panels[0, -1].plot(MIX, mean + 2 * sd, "C3-.", lw=1)
        for row in panels:
            row[-1].legend(fontsize=7)
            row[0].set_ylabel("output f")

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "lee_ensemble")
