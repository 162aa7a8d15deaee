"""The tangent kernel of LeNet on 600 images: its effective rank is far below 6000, and larger for wider networks.

    python3 make.py python examples/spectrum_of_lenet.py [--out DIR] [--data DIR --set mnist|cifar10]

J = grad f(w_0, X) has a row for each image and output.  Its effective rank is exp(-sum p log p), p the singular values
of J over their sum (Roy and Vetterli 2007); Samarin et al. 2022 draw it against width (figure 6) and the singular
values themselves (figure 7).  The paper does not say whether the p are those of J or of the kernel J J', their squares.
Both are given here; widths and shifts are ordered the same way by both.  J itself is never formed: the kernel (6000,
6000) is contracted layer by layer in float64, and its eigenvalues are the squared singular values.

Laptop: 200 of the 8 x 8 digits, four networks at each width; with --data, 600 images and LeNet-5, width 1 on all of
them, wider ones on a third.  --scale paper: 600 images at all widths up to 60.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Found, Source, command_line, finish, images, interval, lenet, placed

import minintk as mn
from minintk.arrays import array_namespace, to_host


def singular_values(data: Source, scale: str, n: int, width: int, shift: int, seed: int) -> np.ndarray[Any, Any]:
    """sigma(J) : (10 n,), descending, from the eigenvalues of J J'; those negative by rounding become 0."""
    train, _ = images(data, n, 1, seed)
    if shift:
        train = train.shifted(shift, np.random.default_rng(seed))
    x: mn.Array = train.standardise().x.astype(np.float64)
    net = mn.Network(lenet(x.shape[1:], width), x.shape[1:], mn.PyTorch())
    x, theta = placed(scale, x, net.init(np.random.default_rng(seed)))
    k = mn.ntk_full(net, theta, x).reshape(n * net.outputs, n * net.outputs)
    eigenvalues = to_host(array_namespace(k).linalg.eigvalsh(k))[::-1]
    return np.asarray(np.sqrt(np.maximum(eigenvalues, 0)))


def effective_rank(sigma: np.ndarray[Any, Any]) -> float:
    """exp of the entropy of sigma / sum sigma."""
    p = sigma[sigma > 0] / sigma.sum()
    return float(np.exp(-np.sum(p * np.log(p))))


def main(
    out: str | None = None, data: Source = None, scale: str = "laptop", widths: tuple[int, ...] = (1, 2, 5),
    n: int = 200, seeds: int = 4, shift: int | None = None,
) -> Found:  # fmt: skip
    """Effective ranks of J and J J' at each width, plain and shifted, and quantiles of the singular values."""
    full = 600 if data else n
    if scale == "paper":
        widths, n, seeds = (1, 2, 5, 10, 25, 60), 600, 1
    elif data:
        seeds = min(seeds, 2)
    largest = (2 if data is None else 7) if shift is None else shift
    found: Found = {"widths": widths, "rank of J": {}, "rank of kernel": {}, "condition": {}, "table": []}
    spectra: dict[tuple[int, int], np.ndarray[Any, Any]] = {}
    for s in (0, largest):
        for width in widths:
            drawn = [singular_values(data, scale, n, width, s, seed) for seed in range(seeds)]
            spectra[s, width] = drawn[0]
            for name, values in (
                ("rank of J", [effective_rank(v) for v in drawn]),
                ("rank of kernel", [effective_rank(v**2) for v in drawn]),
                ("condition", [float(np.log10(v[0] / np.quantile(v, 0.1))) for v in drawn]),
            ):
                found[name].setdefault(s, []).append(interval(values))
        at = ", ".join(f"{r:.0f} ± {h:.0f} (x{w})" for w, (r, h) in zip(widths, found["rank of J"][s]))
        at_kernel = ", ".join(f"{r:.1f} (x{w})" for w, (r, _) in zip(widths, found["rank of kernel"][s]))
        claim = f"effective rank of J, {n} images, {10 * n} rows, shifts up to {s}"
        found["table"].append((claim, "far below the rows, grows", f"{at}; of J J': {at_kernel}"))
    if full > n:
        spectra[0, 1] = v = singular_values(data, scale, full, 1, 0, 0)
        found["full size"] = {"rank of J": effective_rank(v), "rank of kernel": effective_rank(v**2)}
        found["full size"] |= {"largest": float(v[0]), "smallest": float(v[-1]), "median": float(np.median(v))}
        ours = "{rank of J:.0f} of J, {rank of kernel:.1f} of J J'".format(**found["full size"])
        found["table"].append((f"effective rank, {full} images, {10 * full} rows, width 1", "far below 6000", ours))

    def draw(plt: Any) -> None:
        _, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
        for s, style in ((0, "o-"), (largest, "s-")):
            mean, half = np.array(found["rank of J"][s]).T
            left.errorbar(widths, mean, half, fmt=style, label=f"of J, shifts up to {s}")
        left.axhline(10 * n, color="k", ls=":", lw=0.8, label=f"full rank, {10 * n}")
        left.set(xlabel="width factor", ylabel="effective rank; 95 % intervals over seeds", xscale="log", yscale="log")
        left.set_xticks(widths, map(str, widths))
        for (s, width), v in spectra.items():
            right.loglog(np.arange(1, len(v) + 1) / len(v), v, ":" if s else "-", label=f"x{width}, shifts up to {s}")
        right.set(xlabel="rank / rows of J", ylabel="singular value of J")
        left.legend(), right.legend(fontsize=8)

    return finish(out, "spectrum_of_lenet", found, draw)


if __name__ == "__main__":
    command_line(main, __doc__, "spectrum_of_lenet")
