"""Compare NTK and standard parametrizations, and training of only the top layer: Lee et al. 2019, figures S7 and S8.

    python3 make.py python examples/lee_parametrizations.py [--out DIR] [--data DIR]

Networks with three hidden ReLU layers learn a binary task on full batches with mean squared loss, in four ways:

    NTK        z = sigma_w x W / sqrt(fan-in) + sigma_b b
    standard   z = x W + b, with the variances in the weights.  The tangent kernel grows with the width, and input
               weights and biases hardly learn at a fixed fraction of the largest stable rate.
    matched    standard, with rates sigma_w^2 / fan-in for weights and sigma_b^2 for biases: exactly the NTK's runs
    top        NTK, with training of only the top layer: the dynamics of the NNGP kernel

In each case the network's outputs follow those of the infinitely wide network with the same kernel.  The expected
squared error on test images is (mean - y)^2 + variance, with mean and variance from eqs. (14) and (15), or from eqs.
(22) and (23) for the top layer.  All rates are a quarter of the infinitely wide network's largest stable rate.
"""

from __future__ import annotations

from typing import Any, Literal

import lee
import numpy as np
from common import Found, Row, Setting, command_line, finish, interval, percent, plus, tested
from verdicts import POINTS, RATIO, near, percent_of

import analytic as an
import minintk as mn

SIZES: dict[str, dict[str, Any]] = {
    "small": {"width": 256, "seeds": 10, "n_train": 64, "steps": 512},
    "evening": {"width": 512, "seeds": 6, "n_train": 128, "steps": 512},
    "paper": {"width": 2048, "seeds": 20, "n_train": 1024, "steps": 2**16},
}
B_STD, N_TEST, FEW, SHARE = 0.1**0.5, 10_000, 300, 0.25
WAYS = ("NTK", "standard", "matched", "top")


def network(way: str, width: int, d: int) -> tuple[mn.Network, Any, dict[str, float] | None]:
    """Return the network, its infinite-width kernel, and {tensor: scale of its rate} (None if all rates are equal)."""
    rule = mn.NTK() if way in ("NTK", "top") else mn.Standard()
    net = mn.Network(lee.spec("relu", 3, width, b_std=B_STD), (d,), rule)
    kernel = an.kernel(net.spec, rule)
    if way == "matched":
        fans = {name: d if name == "0.W" else width for name in net.layout.slices}
        scales = {name: B_STD**2 if name.endswith("b") else lee.HE**2 / fan for name, fan in fans.items()}
        return net, an.kernel(net.spec), scales
    return net, kernel, {name: float(name.startswith("6")) for name in net.layout.slices} if way == "top" else None


def rate(way: str, width: int, x: Any) -> float:
    """Return a quarter of the infinitely wide network's largest stable rate.

    "matched" uses the rate of "NTK".
    """
    _, kernel, _ = network(way, width, x.shape[1])
    return SHARE * an.max_learning_rate(kernel.nngp(x) if way == "top" else kernel.ntk(x))


def work(data: str, n_train: int, steps: int, width: int, way: str, seed: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return test losses and some outputs after 0, 1, 2, 4, ... steps, and the final 0/1 errors on the test images."""
    x, y, x_test, y_test = lee.problem(data, "binary", n_train, N_TEST)
    net, _, scales = network(way, width, x.shape[1])
    theta0, at = lee.start(net, seed), lee.powers(steps)

    def read(snap: mn.Snapshot) -> Any:
        return lee.outputs(net, snap.theta, x_test)[..., 0]

    f = np.stack(lee.at_steps(net, theta0, x, y, rate(way, width, x), at, read, lr_scales=scales), axis=1)  # (E, T, M)
    loss = 0.5 * np.mean((f - y_test[:, 0]) ** 2, axis=-1)
    wrong = (f[:, -1] * y_test[:, 0] < 0).astype(int)
    return [{"f": f[e, :, :FEW], "loss": loss[e], "wrong": wrong[e].tolist()} for e in range(len(seed))]


def main(s: Setting, width: int, seeds: int, n_train: int, steps: int) -> Found:
    """Return the measured and predicted test losses and the test errors of all four ways, and two eigenvalue ratios.

    Plot the losses against steps.
    """
    x, y, x_test, y_test = lee.problem(s.data, "binary", n_train, N_TEST)
    runs = s.sweep(
        work, {"way": WAYS, "seed": range(seeds)}, together="seed", data=s.data, n_train=n_train, steps=steps,
        width=width,
    )  # fmt: skip
    at, f, target = lee.powers(steps), dict(zip(WAYS, runs["f"])), y_test[:, 0]
    loss, wrong = dict(zip(WAYS, runs["loss"])), dict(zip(WAYS, runs["wrong"]))  # (E, T), (E, M)
    says, limits = {}, {}
    for way in WAYS:
        _, kernel, _ = network(way, width, x.shape[1])
        kind: Literal["ntk", "nngp"] = "nngp" if way == "top" else "ntk"
        ensemble = an.ensemble(kernel, x, y, lr=rate(way, width, x), by="descent")
        mean, sd = ensemble.predict(x_test, t=np.array(at), kind=kind, std=True)
        says[way] = 0.5 * np.mean((mean[..., 0] - target) ** 2 + sd**2, axis=-1)
        end = an.posterior(kernel, x, y, kind=kind).predict(x_test)[:, 0]
        limits[way] = (end * target < 0).astype(float)
    found: Found = {"steps": at, "loss": {way: [interval(v) for v in a.T] for way, a in loss.items()}}
    found["theory"] = {way: v.tolist() for way, v in says.items()}
    found["over theory"] = {way: interval(np.mean(loss[way][:, 1:] / says[way][1:], axis=1)) for way in WAYS}
    found["error"] = {way: tested(v) for way, v in wrong.items()}
    found["standard less NTK"] = tested(wrong["standard"] - wrong["NTK"])
    found["matched from NTK"] = float(np.abs(f["matched"] - f["NTK"]).max())
    found["limits"] = {way: tested(v[None]) for way, v in limits.items()}
    found["top less NTK, limits"] = tested((limits["top"] - limits["NTK"])[None])
    size = f"{n_train} images, width {width}, {steps} steps"
    found["eigenvalues"] = [spread(k) for k in network("NTK", 1, x.shape[1])[1].both(x)]
    over = ", ".join(f"{way} {plus(found['over theory'][way])}" for way in WAYS if way != "matched")
    gap, apart = found["standard less NTK"], found["top less NTK, limits"]
    rows = [
        Row("test loss over that of infinite width at the same steps", "1", over, "seeds", size, seeds,
            near(found["over theory"].values(), 1, RATIO), "open"),
        Row("standard less NTK parametrization, test error (points)", "similar",
            f"{percent(gap)}; {percent(found['error']['standard'])} and {percent(found['error']['NTK'])}", "both", size,
            seeds, percent_of(near([gap], 0, POINTS)), "open"),
        Row("standard with the rates sigma_w^2 / fan-in, sigma_b^2: largest difference from NTK", "-",
            f"{found['matched from NTK']:.1e}", "", f"{size}, float32", seeds),
        Row("NNGP less NTK, test error of the limits (points)", "similar",
            f"{percent(apart)}; {percent(found['limits']['top'])} and {percent(found['limits']['NTK'])}", "images",
            f"{n_train} images, theory", None, percent_of(near([apart], 0, POINTS)), "open"),
        Row("largest over median eigenvalue, NNGP and NTK: how much slower most directions learn", "-",
            f"{found['eigenvalues'][0]:.0f} and {found['eigenvalues'][1]:.0f}", "", f"{n_train} images, theory"),
    ]  # fmt: skip

    def draw(plt: Any) -> None:
        _, panel = plt.subplots(figsize=(7, 4.6), layout="constrained")
        t = np.maximum(at, 0.5)  # shows step 0 on a logarithmic axis
        for i, way in enumerate(WAYS):
            mean, half = np.transpose([v[:2] for v in found["loss"][way]])
            label = f"{way}: error {percent(found['error'][way], 1)} %"
            panel.errorbar(t, mean, half, fmt=f"C{i}{'os^v'[i]}", ms=4, lw=1, label=label)
            panel.plot(t, says[way], f"C{i}--", lw=1)
        panel.plot([], [], "k--", label="infinite width, the same rate")
        panel.set(xscale="log", xlabel="steps, 0 at the left", ylabel="test loss")
        panel.set_title(f"{s.data}, {n_train} images, {seeds} networks of width {width}")
        panel.legend(fontsize=8)

    return finish(s, found, rows, draw)


def spread(k: Any) -> float:
    """Return the largest eigenvalue divided by the median eigenvalue."""
    values = np.linalg.eigvalsh(k)
    return float(values[-1] / np.median(values))


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "lee_parametrizations")
