"""Compute the effective rank of LeNet's tangent kernel on 600 images, which is far below 6000 and grows with the width.

    python3 make.py python examples/spectrum_of_lenet.py [--out DIR] [--data DIR --set mnist|cifar10]

J = grad f(w_0, X) has a row for each image and output.  Its effective rank is exp(-sum p log p), where p are the
singular values of J divided by their sum (Roy and Vetterli 2007).  Samarin et al. 2022 plot the effective rank against
width (figure 6) and the singular values (figure 7).  The paper does not state whether p is computed from the singular
values of J or from their squares, the eigenvalues of the kernel J J'.  We compute both effective ranks; they put the
widths and shifts in the same order.  J itself is never formed.  The kernel, a 6000 x 6000 matrix for 600 images, is
contracted layer by layer in float64, and its eigenvalues are the squared singular values.

The sizes "small" and "evening" use 200 images at all widths.  "evening" also uses 600 images at width 1, except for the
digits.  The size "paper" uses 600 images at all widths up to 60.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from common import Found, Row, Setting, command_line, finish, images, interval, lenet, placed, plus
from verdicts import MUCH, above, below

import minintk as mn
from minintk.arrays import array_namespace, to_host

SIZES: dict[str, dict[str, Any]] = {
    "small": {"widths": (1, 2)},
    "evening": {"widths": (1, 2, 5), "whole": 600},
    "paper": {"widths": (1, 2, 5, 10, 25, 60), "n": 600, "seeds": 5},
}


def spectrum(data: str, n: int, shift: int, width: int, seed: int) -> dict[str, Any]:
    """Return quantiles of the singular values of J, from the largest to the smallest, and the effective ranks.

    The singular values are the square roots of the eigenvalues of J J'. Eigenvalues that rounding made negative are set
    to 0.
    """
    train, _ = images(data, n, 1, seed)
    if shift:
        train = train.shifted(shift, np.random.default_rng(seed))
    x: mn.Array = train.standardise().x.astype(np.float64)
    net = mn.Network(lenet(x.shape[1:], width), x.shape[1:], mn.PyTorch())
    x, theta = placed(x, net.init(np.random.default_rng(seed)))
    k = net.linearize(theta, x)[1].gram().reshape(n * net.outputs, n * net.outputs)
    sigma = np.sqrt(np.maximum(to_host(array_namespace(k).linalg.eigvalsh(k))[::-1], 0))
    ranks = {"rank of J": effective_rank(sigma), "rank of kernel": effective_rank(sigma**2)}
    return {"sigma": np.quantile(sigma, np.linspace(1, 0, 201)), **ranks}


def effective_rank(sigma: np.ndarray[Any, Any]) -> float:
    """Return the exponential of the entropy of sigma / sum sigma."""
    p = sigma[sigma > 0] / sigma.sum()
    return float(np.exp(-np.sum(p * np.log(p))))


def main(s: Setting, widths: tuple[int, ...], n: int = 200, seeds: int = 3, whole: int = 0) -> Found:
    """Return the effective ranks of J and J J' at each width, for unshifted and shifted images.

    Also return quantiles of the singular values.
    """
    shifts = (0, 2 if s.data == "digits" else 7)
    runs = s.sweep(spectrum, {"shift": shifts, "width": widths, "seed": range(seeds)}, data=s.data, n=n)
    found: Found = {"widths": widths, "sigma": runs["sigma"][:, :, 0].tolist()}
    rows = []
    for name in ("rank of J", "rank of kernel"):
        found[name] = {shift: [interval(v) for v in each] for shift, each in zip(shifts, runs[name])}
        for shift in shifts:
            here = ", ".join(f"{plus(r, 1)} (x{w})" for w, r in zip(widths, found[name][shift]))
            last = found[name][shift][-1]
            grows = above(interval(b - a) for a, b in pairwise(runs[name][shifts.index(shift)]))
            grows &= below([last], MUCH * 10 * n)
            rows.append(Row(f"effective {name}, shifts up to {shift}", "far below the rows, grows", here, "seeds",
                            f"{n} images, {10 * n} rows", seeds, grows))  # fmt: skip
    ends = np.log(runs["sigma"][..., [0, -1]])  # the largest and the smallest, far above rounding errors
    for i, shift in enumerate(shifts):
        low, ratio = ends[i, ..., 1], ends[i, ..., 0] - ends[i, ..., 1]  # (widths, seeds)
        each = [f"{np.exp(v.mean()):.2g}; {np.exp(r.mean()):.3g} (x{w})" for v, r, w in zip(low, ratio, widths)]
        both = above(interval(b - a) for a, b in (*pairwise(low), *pairwise(-ratio)))
        rows.append(Row(f"smallest singular value of J; largest / smallest, shifts up to {shift}",
                        "grows; falls (figure 7)", ", ".join(each), "", f"{n} images", seeds,
                        both if len(widths) > 1 else None))  # fmt: skip
    if whole and s.data != "digits":
        large = s.sweep(spectrum, {"shift": shifts, "seed": (0, 1)}, data=s.data, n=whole, width=1)
        ranks = {name: [interval(v) for v in large[name]] for name in ("rank of J", "rank of kernel")}
        found["whole"] = ranks
        for i, shift in enumerate(shifts):
            here = f"{plus(ranks['rank of J'][i], 0)} of J, {plus(ranks['rank of kernel'][i], 1)} of J J'"
            low = below([ranks["rank of J"][i]], MUCH * 10 * whole)
            claim, said = f"effective rank at width 1, shifts up to {shift}", f"far below {10 * whole}"
            rows.append(Row(claim, said, here, "seeds", f"{whole} images, {10 * whole} rows", 2, low))

    def draw(plt: Any) -> None:
        _, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
        for shift, style in zip(shifts, ("o-", "s-")):
            mean, half, *_ = zip(*found["rank of J"][shift])
            left.errorbar(widths, mean, half, fmt=style, capsize=3, label=f"of J, shifts up to {shift}")
        left.axhline(10 * n, color="k", ls=":", lw=0.8, label=f"full rank, {10 * n}")
        left.set(xlabel="width factor", ylabel="effective rank; 95 % intervals over seeds", xscale="log")
        left.set_xticks(widths, map(str, widths)), left.minorticks_off()
        for i, w in np.ndindex(len(shifts), len(widths)):
            label = f"x{widths[w]}, shifts up to {shifts[i]}"
            right.semilogy(np.linspace(0, 1, 201), found["sigma"][i][w], ":" if i else "-", color=f"C{w}", label=label)
        right.set(xlabel="rank / rows of J", ylabel="singular value of J", title=f"{s.data}, {n} images")
        left.legend(), right.legend(fontsize=8)

    return finish(s, found, rows, draw)


if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "spectrum_of_lenet")
