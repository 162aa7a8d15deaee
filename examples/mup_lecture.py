"""Measure norms, laziness, features and rates in spectral muP at growing width: Pleiss, lecture 11.

    python3 make.py python examples/mup_lecture.py [--out DIR] [--data DIR]

Section 2 of the lecture treats a linear network of width D with P inputs: W1 : D x P, W2 : D x D, W3 : 1 x D. The
standard deviations are 1/sqrt(P), 1/sqrt(D), 1/D, and the rates are D/P, 1, 1/D. The section derives the norms of
weights, features and their first updates.  Section 1 derives that kappa = |D^2 f| / |D f|^2 of two-layer networks is of
order D^-1/2 in the (lazy) NTK scaling, and of order 1 in the mean-field scaling.  The other rows of the script's table
are measured on images, for networks with two hidden tanh layers.  Features should move by the same amount at every
width n in muP, and by O(n^-1/2) in the NTK parametrization.  In muP, the best rate for narrow networks should also suit
wide ones.  We train f - f_0, because f_0 in muP falls as n^-1/2 and is comparable to y at n = 64.  If f itself is
trained, features move 1.6 times as far at n = 64 as at n = 512.  If f - f_0 is trained, they move .9 times as far.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, images, interval, plus
from spectral_norms import THEORY, norms
from verdicts import EXPONENT, RATIO, above, below, near, unfinished

import minintk as mn
from minintk.diagnostics import kappa

SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (64, 128, 256, 512), "seeds": 8},
    "evening": {"widths": (64, 128, 256, 512, 1024, 2048), "seeds": 8, "n_train": 512},
    "paper": {"widths": (64, 128, 256, 512, 1024, 2048, 4096), "seeds": 20, "n_train": 1024},
}
RULES = {"muP": mn.SpectralMuP(), "NTK": mn.NTK(), "mean field": mn.MeanField(), "standard": mn.Standard()}
RATES, STEPS = tuple(2.0 ** np.arange(-15, 3)), 30
NAMES = {"|W|": "|W{}|", "|dW|": "|dW{}|", "|h|": "|h{}|", "|dh|": "|dh{}|"}


def linear(width: int, seed: int) -> dict[str, float]:
    """Return the norms of weights, features and their first updates in a linear network.

    Also return each |W| divided by the spectral edge of a Gaussian matrix of its shape.
    """
    found, ratios = norms(width, 1, seed)
    return {name: float(v[0]) for name, v in found.items()} | {f"edge {i}": r for i, r in enumerate(ratios.values())}


def lazy(rule: str, width: int, seed: int) -> dict[str, float]:
    """Return kappa of a two-layer tanh network at initialisation on four inputs in 16 dimensions."""
    net = mn.Network(mn.zoo.mlp(1, width, 1, activation=mn.Tanh(), b_std=0.0), (16,), RULES[rule])
    x = np.random.default_rng([seed, 1]).standard_normal((4, 16))
    return {"kappa": kappa(net, net.init(np.random.default_rng(seed)), x, scales=ones(net)).kappa}


def ones(net: mn.Network) -> dict[str, float]:
    """Return {tensor: 1}, unit learning-rate scales, because the lecture's kappa does not include these scales."""
    return dict.fromkeys(net.layout.slices, 1.0)


def deep(rule: str, width: int, shape: tuple[int, ...]) -> mn.Network:
    """Build a network with two hidden tanh layers and ten outputs."""
    return mn.Network(mn.zoo.mlp(2, width, 10, activation=mn.Tanh(), b_std=0.0), shape, RULES[rule])


def moved(data: str, n_train: int, rule: str, width: int, seed: int) -> dict[str, float]:
    """Return the root mean square changes of pre-activations and outputs after three steps of gradient descent."""
    train, _ = images(data, n_train, 1)
    x, y = train.standardise().one_hot()
    x = x.reshape(len(x), -1)
    net = deep(rule, width, x.shape[1:])
    theta = net.init(np.random.default_rng([seed, width]), dtype=np.float32)
    lr = 0.1 / width if rule == "standard" else 0.1
    *_, end = mn.train(mn.Centred(net, theta, 1.0), theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=lr), steps=3)
    before, after = (mn.diagnostics.trace(net, at, x) for at in (theta, end.theta))
    layers = [name for name in before if name.isdigit() and int(name) % 2 == 0]
    return {f"h{i + 1}": float(np.sqrt(np.mean((after[k].h - before[k].h) ** 2))) for i, k in enumerate(layers)}


def losses(data: str, n_train: int, rule: str, width: int, seed: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return the loss after STEPS steps of Adam at each rate, or the initial loss if it is lower or a seed diverges."""
    train, _ = images(data, n_train, 1)
    x, y = train.standardise().one_hot()
    x = x.reshape(len(x), -1)
    net = deep(rule, width, x.shape[1:])
    theta = np.stack([net.init(np.random.default_rng([one, width]), dtype=np.float32) for one in seed])
    model = mn.Centred(net, theta, 1.0)
    start, found = mn.mse(model(theta, x), y), []
    for adam in map(mn.Adam, RATES):
        try:
            with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # training may diverge
                *_, end = mn.train(model, theta, x, y, loss=mn.mse, optimizer=adam, steps=STEPS, every=STEPS)
            found.append(np.minimum(end.loss, start))
        except FloatingPointError:
            found.append(start)
    return [{"loss": [float(at_rate[e]) for at_rate in found]} for e in range(len(seed))]


def exponents(widths: tuple[int, ...], values: Any) -> Any:
    """Fit a power of the width to each seed's values, and return the mean exponent with its interval.

    values : (widths, seeds).
    """
    log_n = np.log(widths) - np.mean(np.log(widths))
    return interval(log_n @ np.log(values) / (log_n @ log_n))


def main(s: Setting, widths: tuple[int, ...], seeds: int, n_train: int = 128) -> Found:
    """Return the exponents with which the norms, kappa and the movement of features scale with the width.

    Also return the log ratio of the widest networks' losses at the narrowest networks' best rate and at their own.
    """
    of_width = {"width": widths, "seed": range(seeds)}
    runs = s.sweep(linear, of_width)
    P = 16
    small = (np.sqrt(widths) / (np.sqrt(widths) + np.sqrt(P)))[:, None]  # |W1| is about sigma (sqrt(D) + sqrt(P))
    table = {name: exponents(widths, runs[name] * (small if name == "|W1|" else 1)) for name in THEORY}
    found: Found = {"widths": widths, "exponents": table}
    size, rows = f"D = {widths[0]} to {widths[-1]}", []
    for title, kind in NAMES.items():
        names = [kind.format(i) for i in (1, 2, 3)]
        said = ", ".join(f"{THEORY[name]:g}" for name in names)
        rule = [near([table[name]], THEORY[name], EXPONENT) for name in names]
        why = "|h3| <= D^0 is a bound that W3 independent of h2 does not reach: D^-1/2" if title == "|h|" else "open"
        rows.append(Row(f"linear network, {title} of layers 1, 2, 3 ~ D^b: b", said,
                        ", ".join(plus(table[name]) for name in names), "seeds", f"{size}, P = {P}", seeds,
                        rule[0] & rule[1] & rule[2], why))  # fmt: skip
    edges = [interval(runs[f"edge {i}"][-1]) for i in range(3)]
    rows.append(Row("|W| over sigma (sqrt(D) + sqrt(P)), layers 1, 2, 3", "1", ", ".join(map(plus, edges)), "seeds",
                    f"D = {widths[-1]}", seeds, near(edges, 1, RATIO)))  # fmt: skip
    curved = s.sweep(lazy, {"rule": ("NTK", "mean field"), **of_width})["kappa"]
    powers = [exponents(widths, values) for values in curved]
    rows.append(Row("kappa ~ D^b in the NTK scaling and in mean field: b", "-1/2, 0", ", ".join(map(plus, powers)),
                    "seeds", f"two layers, tanh, {size}", seeds,
                    near(powers[:1], -0.5, EXPONENT) & near(powers[1:], 0, EXPONENT)))  # fmt: skip
    steps = s.sweep(moved, {"rule": ("muP", "NTK"), **of_width}, data=s.data, n_train=n_train)
    for i, (name, theory) in enumerate((("muP", (0, 0, 0)), ("NTK", (-0.5, -0.5, 0)))):
        found[f"moved, {name}"] = powers = [exponents(widths, steps[f"h{k}"][i]) for k in (1, 2, 3)]
        a, b, c = (near([power], there, EXPONENT) for power, there in zip(powers, theory, strict=True))
        rows.append(Row(f"{name}: |dh1|, |dh2|, |df| ~ n^b after 3 steps: b", ", ".join(f"{t:g}" for t in theory),
                        ", ".join(map(plus, powers)), "seeds", f"{n_train} images, tanh, {size}", seeds, a & b & c,
                        "open"))  # fmt: skip
    trained = np.log(s.sweep(losses, {"rule": ("muP", "standard"), **of_width}, together="seed", data=s.data,
                             n_train=n_train)["loss"])  # (2, widths, seeds, rates)  # fmt: skip
    found["losses"] = trained.mean(axis=2).tolist()
    for i, (name, paper) in enumerate((("muP", "none"), ("standard", "some"))):
        rate = trained[i, 0].mean(axis=0).argmin()
        best = trained[i, -1].mean(axis=0).argmin()
        cost = interval(trained[i, -1, :, rate] - trained[i, -1, :, best])
        claim = below([cost], RATIO) if name == "muP" else above([cost], RATIO)
        if {rate, best} & {0, len(RATES) - 1}:
            claim = unfinished("a best rate at an end of those tried")
        found[f"cost, {name}"] = cost
        title = f"{name}: log of the loss at n = {widths[-1]}, best rate of n = {widths[0]} over its own"
        size = f"{n_train} images, {STEPS} steps of Adam"
        rows.append(Row(title, paper, plus(cost), "seeds", size, seeds, claim, "open"))

    def draw(plt: Any) -> None:
        _, panels = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
        for i, name in enumerate(("|dh1|", "|dh2|", "|dh3|", "|W1|", "|W3|")):
            mean, half = np.transpose([interval(v)[:2] for v in runs[name]])
            panels[0].errorbar(widths, mean, half, fmt=f"C{i}o", ms=4, label=f"{name}: {plus(table[name])}")
            guide = np.array(widths, float) ** THEORY[name]
            panels[0].plot(widths, guide * np.exp(np.mean(np.log(mean / guide))), f"C{i}--", lw=1)
        panels[0].set(title="linear network (dashed: the lecture)", xscale="log", yscale="log", xlabel="width D")
        for i, name in enumerate(("muP", "NTK")):
            for k, marker in enumerate("os^", 1):
                mean, half = np.transpose([interval(v)[:2] for v in steps[f"h{k}"][i]])
                label = f"{name}, {'f' if k == 3 else f'h{k}'}: {plus(found[f'moved, {name}'][k - 1])}"
                panels[1].errorbar(widths, mean, half, fmt=f"C{i}{marker}-", ms=4, lw=1, label=label)
        panels[1].set(title=f"what 3 steps move, {s.data}", xscale="log", yscale="log", xlabel="width n")
        for j, (n, line) in enumerate(zip(widths, np.exp(trained[0].mean(axis=1)), strict=True)):
            panels[2].plot(RATES, line, f"C{j}o-", ms=3, lw=1, label=f"muP, n = {n}")
        for j in (0, len(widths) - 1):
            label = f"standard, n = {widths[j]}"
            panels[2].plot(RATES, np.exp(trained[1, j].mean(axis=0)), f"C{j}s:", ms=3, lw=1, label=label)
        panels[2].set(title=f"Adam, {STEPS} steps", xscale="log", yscale="log", xlabel="learning rate", ylabel="loss")
        for panel in panels[:2]:
            panel.set_xticks(widths, map(str, widths)), panel.minorticks_off()
        for panel in panels:
            panel.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14))

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "mup_lecture")
