"""Compare read-outs of convolutional kernels: flattened pixels (B = 1), pooling in B x B windows, and global pooling.

    python3 make.py python examples/local_pooling.py [--out FILE.png]                      digits, in seconds
    ... --data DIR --train 1000 --test 1000 --layers 5 --windows 1 3 5 --store FOLDER      CIFAR-10, resumable

The kernels are tangent kernels of `layers` 3 x 3 convolutions with ReLU, computed in float32.  Averaging over B x B
windows with stride 1 before Flatten is the local average pooling of Li et al. 2019, arXiv 1911.00809.  They report an
accuracy of 89 % with all of CIFAR-10, flips and further preprocessing.  With flips, the training set also contains the
mirror image g x of each image x.  Since k(g x, g x') = k(x, x'), x_i and g x_i share the coefficient a_i:

    f(x) = sum_i a_i (k(x, x_i) + k(x, g x_i)),     (K + G + ridge I) a = y,     G_ij = k(x_i, g x_j)

The ridge is chosen to minimise the squared leave-one-out error on the training images.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

PAIRS_OF_ALL = 50_000**2 / 2 + 50_000 * 10_000  # pairs of images for the kernels on all of CIFAR-10
RIDGES = 10.0 ** np.arange(-6, 0.1)


def data(folder: str | None, train: int, test: int) -> tuple[mn.datasets.Dataset, ...]:
    """Return training and test images in float32 with standardised channels.

    The images are digits, or the first images of CIFAR-10 if `folder` is given.
    """
    one, two = mn.datasets.digits(dtype=np.float32).split(150, 300, np.random.default_rng(0))
    if folder is not None:
        one, two = (mn.datasets.cifar10(folder, part, dtype=np.float32) for part in ("train", "test"))
    return one[:train].standardise().images(), two[:test].standardise(fit=one[:train]).images()


def outputs(K: Any, k: Any, y: Any) -> Any:
    """Return k (K + ridge I)^-1 y with the ridge that minimises the leave-one-out error.

    RIDGES are multiples of K's mean eigenvalue. With G = K + ridge I, the error of example i is (G^-1 y)_i / (G^-1)_ii.
    """
    lam, Q = np.linalg.eigh(K.astype(np.float64))

    def solved(ridge: float) -> tuple[float, Any]:
        inverse = (Q / (np.maximum(lam, 0) + ridge * lam.mean())) @ Q.T
        a = inverse @ y
        return float(((a / np.diagonal(inverse)[:, None]) ** 2).sum()), a

    return k @ min(map(solved, RIDGES), key=lambda pair: pair[0])[1]


def main(
    out: str | None = None, folder: str | None = None, train: int = 150, test: int = 300, layers: int = 3,
    windows: tuple[int, ...] = (1, 2, 3, 8), store: str | None = None, halve: bool = False,
) -> dict[str, float]:  # fmt: skip
    """Return accuracies with and without flips, and CPU milliseconds per image pair; plot the accuracies to `out`."""
    one, two = data(folder, train, test)
    x, x_test, y, found = one.x, two.x, np.eye(10)[one.labels] - 0.1, dict[str, float]()
    if halve:
        x, x_test = (a.reshape(len(a), a.shape[1] // 2, 2, -1, 2, a.shape[3]).mean(axis=(2, 4)) for a in (x, x_test))
    print("window    plain            with flips       CPU ms a pair  core hours for CIFAR-10")
    for B in windows:
        name, local = f"B = {B}", (mn.AvgPool(B, stride=1), mn.Flatten())
        end = (mn.Flatten(),) if B == 1 else (mn.GlobalAvgPool(),) if x.shape[1] == B else local
        block, start = [mn.Conv2d(64, 3, w_std=2**0.5), mn.ReLU()] * layers, time.process_time()
        kernel = an.kernel(mn.Sequential(*block, *end, mn.Dense(10)))
        pairs = ((x, None), (x_test, x), (x, x[:, :, ::-1]), (x_test, x[:, :, ::-1]))
        places = [store and f"{store}/{name}-{i}" for i in range(4)]
        K, k, G, g = (kernel.ntk(a, b, store=at) for (a, b), at in zip(pairs, places, strict=True))
        ms = 1e3 * (time.process_time() - start) / (1.5 * train**2 + 2 * train * test)
        for how, f in (("", outputs(K, k, y)), (", flips", outputs(K + G, k + g, y))):
            found[name + how], found[f"{name}: ms"] = float(np.mean(f.argmax(axis=1) == two.labels)), ms
        scores = [(p, (p * (1 - p) / test) ** 0.5) for p in (found[name], found[f"{name}, flips"])]
        shown = "  ".join(f"{p:6.1%} +- {error:.1%}" for p, error in scores)
        print(f"{name:8} {shown}  {ms:13.3g}  {ms * PAIRS_OF_ALL / 3.6e6:10,.0f}", flush=True)
    if out:
        import matplotlib.pyplot as plt

        plt.style.use("analytic.verify.look")
        figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
        for i, how in enumerate(("", ", flips")):
            p, at = np.array([found[f"B = {B}{how}"] for B in windows]), np.arange(len(windows)) + 0.1 * i
            half = 100 * (p * (1 - p) / test) ** 0.5
            ax.errorbar(at, 100 * p, half, fmt="os"[i], capsize=3, label=how[2:] or "plain")
        ax.set_xticks(range(len(windows)), [f"B = {B}\n{found[f'B = {B}: ms']:.2g} ms a pair" for B in windows])
        ax.set(ylabel="test accuracy, %", title=f"{train:,} images, {layers} convolutions, one standard error")
        ax.legend()
        figure.savefig(out, dpi=120)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="local_pooling.png", help="the figure (%(default)s)")
    parser.add_argument("--data", help="the folder of CIFAR-10; without it, the digits")
    for name, default in {"train": 150, "test": 300, "layers": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 2, 3, 8], help="sides B, up to the image's")
    parser.add_argument("--halve", action="store_true", help="average 2 x 2 pixels first: a tenth of the work")
    parser.add_argument("--store", help="a folder for the kernels, which go on where they were killed")
    a = parser.parse_args()
    main(a.out, a.data, a.train, a.test, a.layers, tuple(a.windows), a.store, a.halve)
