"""Identify the author of a sentence with kernels of infinitely wide attention networks and with finite networks.

    python3 make.py python examples/authors_by_attention.py [--out FILE.png] [--width 64] [--networks 4]

The sentences are by Jane Austen and H. G. Wells.  Each word is represented by a random vector, and sentences are padded
with zeros to 20 words.  The network consists of a convolution over three words, ReLU, softmax attention with 4 heads
and scale 1/(key size), ReLU, the mean over words, and a dense layer.  Attention and the mean skip positions at which
all features are 0.  With the NNGP kernel, the prediction is the posterior mean of a Gaussian process with noisy
observations.  The NTK predicts the mean output of infinitely wide networks, trained as the finite networks are (Hron et
al. 2020).  The script prints test accuracies with 95 % intervals.  It also prints the distance between the networks'
mean output and the NTK's prediction, and the standard error of this mean, both relative to the prediction's norm.
"""

from __future__ import annotations

import argparse

import numpy as np

import analytic as an
import minintk as mn

MOMENTUM, NOISE = 0.9, 0.1


def network(width: int) -> mn.Sequential:
    """Build a network with `width` channels in the convolution and half as many channels in each head."""
    attention = mn.GlobalSelfAttention(
        width, heads=4, key_channels=width // 2, value_channels=width // 2, qk_std=2.0, w_std=2**0.5, masked=True
    )
    front = mn.Conv1d(width, 3, w_std=2**0.5), mn.ReLU()
    return mn.Sequential(*front, attention, mn.ReLU(), mn.MaskedAvgPool(), mn.Dense(1))


def main(
    out: str | None = None, sizes: tuple[int, ...] = (50, 100, 200), test: int = 400, width: int = 64,
    networks: int = 4, steps: int = 100, seed: int = 0,
) -> dict[str, float]:  # fmt: skip
    """Return accuracies and distances for each number of training sentences; plot the accuracies to `out` if given."""
    rng = np.random.default_rng(seed)
    authors = mn.datasets.sentences().embed(20, 64, rng).pair("Austen", "Wells")
    one, two = authors.split(max(sizes), test, rng)
    x, x_test = (part.x.astype(np.float32) for part in (one, two))
    y = np.where(one.labels, 1.0, -1.0)[:, None]
    kernel = an.kernel(network(width))
    own, across = kernel.both(x), kernel.both(x_test, x)
    nngp, ntk, k_nngp, k_ntk = (np.asarray(k, np.float64) for k in (*own, *across))
    net = mn.Network(network(width), x.shape[1:])
    found: dict[str, float] = {}
    print(f"{test} test sentences; {networks} networks of width {width}, {steps} steps")
    print("train     NNGP             NTK              networks         |mean - NTK| / |NTK|  scatter explains")
    for N in sizes:
        lr = 0.15 * float(an.max_learning_rate(ntk[:N, :N], momentum=MOMENTUM))
        f = {"NNGP": k_nngp[:, :N] @ np.linalg.solve(nngp[:N, :N] + NOISE * np.eye(N), y[:N])}
        descent = an.gradient_descent(ntk[:N, :N], y[:N], lr=lr, momentum=MOMENTUM)
        f["NTK"] = np.asarray(descent.predict(steps, k_ntk[:, :N]))
        theta = net.init(np.random.default_rng(seed + 1), ensemble=networks, dtype=np.float32)
        optimizer = mn.SGD(lr=lr, momentum=MOMENTUM)
        *_, last = mn.train(net, theta, x[:N], y[:N].astype(np.float32), loss=mn.mse, optimizer=optimizer, steps=steps)
        each = np.asarray(net(last.theta, x_test))
        f["networks"] = each.mean(axis=0)
        shown = f"{N:5}"
        for name, values in f.items():
            right = float(np.mean((values[:, 0] > 0) == two.labels))
            found |= {f"{name}, {N}": right, f"{name}, {N} ±": 1.96 * (right * (1 - right) / test) ** 0.5}
            shown += f"   {right:6.1%} ± {found[f'{name}, {N} ±']:5.1%}"
        size = float(np.linalg.norm(f["NTK"]))
        found[f"distance, {N}"] = float(np.linalg.norm(f["networks"] - f["NTK"])) / size
        found[f"scatter, {N}"] = float(np.linalg.norm(each.std(axis=0, ddof=1))) / networks**0.5 / size
        print(f"{shown}   {found[f'distance, {N}']:12.3f} {found[f'scatter, {N}']:17.3f}")
    if out:
        draw(out, sizes, found)
    return found


def draw(out: str, sizes: tuple[int, ...], found: dict[str, float]) -> None:
    """Plot the accuracies, with lines for the kernels and points for the networks."""
    import matplotlib.pyplot as plt

    plt.style.use("analytic.verify.look")
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, style, shift in (("NNGP", "C1s--", 0.97), ("NTK", "C0-", 1.0), ("networks", "C2o", 1.03)):
        values, errors = (100 * np.array([found[f"{name}, {N}{end}"] for N in sizes]) for end in ("", " ±"))
        ax.errorbar(shift * np.array(sizes), values, errors, fmt=style, capsize=3, label=name)
    ax.axhline(50, color="0.6", lw=1, label="chance")
    ax.set(xlabel="training sentences", ylabel="test accuracy, %", title="Austen or Wells, by attention", xscale="log")
    ax.set_xticks(sizes, [str(N) for N in sizes])
    ax.minorticks_off()
    ax.legend()
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="authors_by_attention.png", help="the figure (%(default)s)")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--networks", type=int, default=4)
    a = parser.parse_args()
    main(a.out, width=a.width, networks=a.networks)
