"""Predict the test loss for four times the data from the kernel and labels of a small sample, without fitting.

    python3 make.py python examples/four_times_the_data.py [--data mnist] [--out FILE.png]

`analytic.predict_loss` uses n images to predict the test loss for 4n images.  Regression with the same kernel learns
parity from 4n other images at four ridges, and is tested on a third set of images.  In each of the 12 cells (n, ridge),
the losses are averaged over draws.  The control assumes that more data do not help, and uses the predicted loss for n
images at the same ridge.  Networks of width 512 are trained with weight decay on two draws of each cell.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

Host = np.ndarray[Any, Any]
SCALES = (2, 4, 8, 16)
SIZES = {"digits": (50, 100, 200), "mnist": (125, 250, 500)}


def spec(width: int) -> mn.Sequential:
    """Build a network with three hidden ReLU layers and one output."""
    return mn.Sequential(*[mn.Dense(width, w_std=2**0.5, b_std=0.1), mn.ReLU()] * 3, mn.Dense(1))


def one_draw(x: Host, y: Host, n: int, test: int, rng: np.random.Generator) -> tuple[Host, Host, Host, Host, Host]:
    """Return predicted, measured and control losses and the ridges, each (4,), and the permutation of the images."""
    at, k = rng.permutation(len(x)), an.kernel(spec(512))
    few, many, rest = at[:n], at[n : 5 * n], at[5 * n : 5 * n + test]
    K, K4, K_test = k.ntk(x[few]), k.ntk(x[many]), k.ntk(x[rest], x[many])
    ridges = 4 * n * np.array(SCALES) / np.sum(1 / np.linalg.eigvalsh(K))
    mu, Q = np.linalg.eigh(K4)
    f = K_test @ Q @ ((Q.T @ y[many]) / (mu[:, None] + ridges))
    said, control = ([an.predict_loss(K, y[few], examples=N, ridge=r) for r in ridges] for N in (4 * n, n))
    return np.array(said), np.mean((f - y[rest]) ** 2, axis=0), np.array(control), ridges, at


def network(x: Host, y: Host, n: int, test: int, ridge: float, at: Host, width: int) -> float:
    """Train one network on 4n images with weight decay towards its initial weights, and return its test loss."""
    many, rest = at[n : 5 * n], at[5 * n : 5 * n + test]
    x, y = x.astype(np.float32), y.astype(np.float32)
    net = mn.Network(spec(width), x.shape[1:])
    model = mn.Centred(net, theta0 := net.init(np.random.default_rng(0), dtype=np.float32), 1.0)
    lr = 0.5 * an.max_learning_rate(an.kernel(spec(width)).ntk(x[many]))
    by = mn.SGD(lr=lr, momentum=0.9, weight_decay=ridge / len(many), towards=theta0)
    *_, end = mn.train(
        model, theta0, x[many], y[many], loss=mn.mse, optimizer=by, steps=max(60, int(0.6 * len(many) / lr / ridge))
    )
    return float(np.mean((model(end.theta, x[rest]) - y[rest]) ** 2))


def main(
    out: str | None = None, data: str = "digits", sizes: tuple[int, ...] = (), draws: int = 20, width: int = 512,
    test: int = 600,
) -> dict[str, float]:  # fmt: skip
    """Return the relative differences of the predicted and the networks' losses from the losses of kernel regression.

    Also return the number of cells with a prediction within 10 %, and the largest difference of the predictions.
    """
    rng, found, sizes = np.random.default_rng(0), dict[str, float](), sizes or SIZES[data]
    x, y = (mn.datasets.digits() if data == "digits" else mn.datasets.mnist().subset(20_000, rng)).on_sphere().parity()
    means, errors, controls, wide = [], [], [], []
    for n in sizes:
        runs = [one_draw(x, y, n, test, rng) for _ in range(draws)]
        said, seen, control, ridges = (np.array([run[i] for run in runs]) for i in range(4))
        means.append((said.mean(0), seen.mean(0)))
        errors.append((said - seen).std(0, ddof=1) / draws**0.5 / seen.mean(0))
        controls.append(control.mean(0) / seen.mean(0) - 1)
        nets = [[network(x, y, n, test, r, runs[i][4], width) for r in ridges[i]] for i in range(2)]
        wide.append(np.mean(nets / seen[:2] - 1, axis=0))
        for c, one, error, net in zip(SCALES, means[-1][0] / means[-1][1] - 1, errors[-1], wide[-1], strict=True):
            cell = f"{4 * n} from {n}, ridge {c}: "
            found |= {cell + "distance": one, cell + "its error": error, cell + "networks": net}
    apart = np.array([a / b - 1 for a, b in means])
    for name, some in (("", apart), ("control: ", np.array(controls))):
        found |= {f"{name}cells within 10 %": float(np.sum(np.abs(some) < 0.1)), f"{name}largest": np.abs(some).max()}
    found |= {"networks: mean distance": float(np.mean(wide)), "networks: largest": float(np.max(np.abs(wide)))}
    if out:
        import matplotlib.pyplot as plt

        plt.style.use("analytic.verify.look")
        figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
        for i, (n, (said, seen), error) in enumerate(zip(sizes, means, errors, strict=True)):
            axes.semilogx(SCALES, said, f"C{i}--")
            axes.errorbar(SCALES, seen, 2 * error * seen, fmt=f"C{i}o", label=f"{4 * n} images, from {n}")
        axes.set(
            xlabel="ridge, in units of 4n / tr(K^-1)", ylabel="test loss", title="regression; dashed: predict_loss"
        )
        _ = axes.set_xticks(SCALES, list(map(str, SCALES))), axes.legend()
        figure.savefig(out, dpi=120)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="four_times_the_data.png", help="the figure (%(default)s)")
    parser.add_argument("--data", choices=sorted(SIZES), default="digits")
    for name, value in main(**vars(parser.parse_args())).items():
        print(f"{name:52} {value:.4g}")
