"""Define the exercises of assignment 2.

The correct results come from minintk's layers, and the derivatives from finite differences or, at ties, from minintk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any

import hw2_experiment as data  # type: ignore[import-not-found]  # beside this file
import numpy as np

import minintk as mn
from minintk.grade import Assignment, Exercise, Gradient, Law, Submission, Values, compare, hard_inputs, with_experiment
from minintk.grade.exercise import Case

Array = Any
Variant = Mapping[str, Any]
SECONDS = 5.0

LAYOUTS = tuple("".join(order) for order in permutations("NHWC") if order.index("H") < order.index("W"))
"""Orders of image axes with rows before columns. Each student's is drawn from the ten that are not in AUTHORS."""
AUTHORS = "NHWC", "NCHW"

# --------------------------------------------------------------------------------------------- the right answers


def shown(x: Array, variant: Variant) -> Array:
    """Return images (N, H, W, C) in the student's layout."""
    return np.ascontiguousarray(x.transpose(["NHWC".index(axis) for axis in variant["layout"]]))


def layer(x: Array, layer: mn.Layer, W: Array = None, b: Array = None) -> tuple[Array, Any]:
    """Return (y, dy/dx) of one layer of minintk, for float64 images with channels last."""
    net = mn.Network(mn.Sequential(layer, mn.Flatten()), x.shape[1:], mn.Standard())
    theta = (np.zeros(0) if W is None else np.concatenate([W.ravel(), b.ravel()])).astype(x.dtype)
    y, J = net.linearize(theta, x, wrt="x")
    inside = mn.spec.shapes.out_shape(layer, x.shape[1:])
    return y.reshape(len(x), *inside), J


def conv(x: Array, W: Array, b: Array, stride: int, pad: int, variant: Variant) -> Array:
    """Convolve images (N, H, W, C) with minintk."""
    V = W if variant["kernel"] == "correlation" else W[::-1, ::-1].copy()
    size = (V.shape[0], V.shape[1])
    return layer(x, mn.Conv2d(V.shape[3], size, stride=stride, padding=pad, b_std=1.0), V, b)[0]


def max_pool(x: Array, size: int, stride: int, pad: int) -> tuple[Array, Any]:
    """Return (y, dy/dx); ties go to the first pixel in row-major order."""
    return layer(x, mn.MaxPool(size, stride=stride, padding=pad))


def avg_pool(x: Array, size: int, stride: int, pad: int, variant: Variant) -> Array:
    """Average over each window, or over the part of each window that is inside the image."""
    pool = mn.AvgPool(size, stride=stride, padding=pad)
    inside = layer(np.ones_like(x), pool)[0] if variant["average"] == "inside" else 1.0
    return layer(x, pool)[0] / inside


def filters(rng: np.random.Generator, size: tuple[int, int], C: int, n: int) -> tuple[Array, Array]:
    return rng.standard_normal((*size, C, n)) / np.sqrt(size[0] * size[1] * C), rng.standard_normal(n)


# ---------------------------------------------------------------------------------------------- convolution

PLAIN = (
    ("3 x 2 pixels", (2, 4, 3, 3), (3, 2), 2, 1, 0),
    ("as many channels out as in", (2, 4, 4, 2), (2, 2), 2, 1, 0),
    ("one example, one pixel", (1, 3, 4, 2), (1, 1), 3, 1, 0),
)
MOVED = (
    ("padding 1", (2, 3, 4, 2), (3, 3), 2, 1, 1),
    ("stride 2", (1, 5, 5, 2), (2, 2), 2, 2, 0),
    ("stride 2, the last row and column left over", (1, 6, 4, 2), (3, 3), 3, 2, 0),
    ("stride 2, padding 2", (1, 3, 4, 1), (3, 2), 2, 2, 2),
    ("stride 3, wider than the kernel", (1, 5, 4, 2), (2, 2), 2, 3, 1),
)


def images(rng: np.random.Generator, variant: Variant, cases: Any) -> Iterator[Case]:
    for title, shape, size, n, stride, pad in cases:
        x, (W, b) = rng.standard_normal(shape), filters(rng, size, shape[3], n)
        want = shown(conv(x, W, b, stride, pad, variant), variant)
        other = {"kernel": "convolution" if variant["kernel"] == "correlation" else "correlation"}
        suspects = {
            "the kernel is turned around: look up which kernel your handout asks for": shown(
                conv(x, W, b, stride, pad, other), variant
            ),
            "the bias is forgotten": shown(conv(x, W, 0 * b, stride, pad, variant), variant),
        }
        yield Values("conv", (shown(x, variant), W, b, stride, pad), want, title=title, suspects=suspects)
    small = [a.astype(np.float32) for a in (shown(x, variant), W, b)]
    yield Values("conv", (*small, stride, pad), want.astype(np.float32), title="float32")


def conv_plain(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    yield from images(rng, variant, PLAIN)


def conv_moved(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    yield from images(rng, variant, MOVED)


def asked(function: Any, variant: Variant) -> Any:
    """Return a version of one of the functions above for images in the student's layout."""

    def right(x: Array, *args: Any) -> Array:
        y = function(x.transpose([variant["layout"].index(axis) for axis in "NHWC"]), *args, variant)
        return shown(np.asarray(y), variant)

    return right


def pulled(rng: np.random.Generator, variant: Variant, cases: Any) -> Iterator[Case]:
    for title, shape, size, n, stride, pad in cases:
        x, (W, b) = shown(rng.standard_normal(shape), variant), filters(rng, size, shape[3], n)
        yield Gradient("conv", "conv_backward", (x, W, b, stride, pad), title=title, right=asked(conv, variant))


def conv_plain_backward(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    yield from pulled(rng, variant, PLAIN)
    yield from many(rng, variant, 1, 0)


def many(rng: np.random.Generator, variant: Variant, stride: int, pad: int) -> Iterator[Case]:
    """Yield a case with a million weights: too many to differentiate numerically or by convolving unit images."""
    x, (W, b) = shown(rng.standard_normal((2, 6, 6, 256)), variant), filters(rng, (3, 3), 256, 448)
    args, right = (x, W, b, stride, pad), asked(conv, variant)
    yield Gradient("conv", "conv_backward", args, title="a million weights", right=right, large=True)


def conv_moved_backward(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    yield from pulled(rng, variant, MOVED)
    yield from many(rng, variant, 2, 1)


def fast(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    x, (W, b) = shown(rng.standard_normal((16, 32, 32, 8)), variant), filters(rng, (3, 3), 8, 16)
    u = shown(rng.standard_normal((16, 32, 32, 16)), variant)

    def check(student: Submission) -> str:
        began = time.perf_counter()
        student.pull("conv", "conv_backward", u, x, W, b, 1, 1)
        spent = time.perf_counter() - began
        return f"conv and conv_backward took {spent:.1f} s" if spent > SECONDS else ""

    yield Law("16 images of 32 x 32 pixels", check)


# -------------------------------------------------------------------------------------------------- pooling

POOLS = (("windows side by side", (2, 2, 4, 2), 2, 2), ("windows that overlap", (1, 5, 4, 1), 3, 1),
         ("one left over", (1, 5, 3, 3), 2, 2))  # fmt: skip


LARGE = "100,000 pixels"
"""Title of cases so large that differences exceed the time limit, but loops over the windows do not."""


def max_plain(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, shape, size, stride in POOLS:
        x = rng.standard_normal(shape)
        want = shown(max_pool(x, size, stride, 0)[0], variant)
        yield Values("max_pool", (shown(x, variant), size, stride, 0), want, title=title)
    for title, x in hard_inputs(rng, (4, 4, 2)):
        yield Values("max_pool", (shown(x, variant), 2, 2, 0), shown(max_pool(x, 2, 2, 0)[0], variant), title=title)
    small = shown(x, variant).astype(np.float32)
    yield Values("max_pool", (small, 2, 2, 0), shown(max_pool(x, 2, 2, 0)[0], variant).astype(np.float32),
                 title="float32")  # fmt: skip


def max_padded(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, shape, size, stride, pad in (("padding 1", (2, 4, 5, 2), 3, 2, 1), ("padding 2", (1, 3, 3, 1), 3, 1, 2)):
        x = -1 - np.abs(rng.standard_normal(shape))
        want = shown(max_pool(x, size, stride, pad)[0], variant)
        suspects = {"the padding counts as 0, and is larger than the pixels": np.maximum(want, 0.0) * (want > 0)}
        args = (shown(x, variant), size, stride, pad)
        yield Values("max_pool", args, want, title=f"negative pixels, {title}", suspects=suspects)


def max_backward(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    right = asked(lambda x, size, stride, pad, variant: max_pool(x, size, stride, pad)[0], variant)
    for title, shape, size, stride in POOLS:
        x = shown(rng.standard_normal(shape), variant)
        args = (x, size, stride, 0)
        yield Gradient("max_pool", "max_pool_backward", args, title=title, hard=False, right=right)
    x = shown(-1 - np.abs(rng.standard_normal((2, 4, 5, 1))), variant)
    yield Gradient("max_pool", "max_pool_backward", (x, 3, 2, 1), title="negative pixels, padding 1", hard=False,
                   right=right)  # fmt: skip
    windows = rng.permuted(np.tile(np.arange(4.0), (25_000, 1)), axis=1).reshape(1, 200, 125, 2, 2)
    x = shown(windows.swapaxes(2, 3).reshape(1, 400, 250, 1), variant)  # whole numbers, different within a window
    yield Gradient("max_pool", "max_pool_backward", (x, 2, 2, 0), title=LARGE, right=right, large=True)


def ties(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    def case(title: str, x: Array, size: int, stride: int, pad: int) -> Case:
        y, J = max_pool(x, size, stride, pad)
        u = rng.standard_normal(y.shape)
        want = shown(J.vjp(u.reshape(len(x), -1)), variant)
        last = max_pool(x[:, ::-1, ::-1].copy(), size, stride, pad)[1].vjp(u[:, ::-1, ::-1].reshape(len(x), -1))
        suspects = {"the last of the equal entries gets the gradient": shown(last[:, ::-1, ::-1], variant)}

        def check(student: Submission) -> Any:
            got, _ = student.pull(
                "max_pool", "max_pool_backward", shown(u, variant), shown(x, variant), size, stride, pad
            )
            return compare("dx", got, want, suspects=suspects)

        return Law(title, check)

    yield case("all pixels equal", np.ones((1, 4, 4, 2)), 2, 2, 0)
    yield case("all pixels 0, windows that overlap", np.zeros((2, 4, 4, 1)), 3, 1, 0)
    yield case("entries of -1, 0 and 1", rng.integers(-1, 2, (3, 6, 4, 2)).astype(np.float64), 2, 2, 0)
    yield case("all pixels 0, padding 1", np.zeros((1, 3, 3, 1)), 3, 2, 1)


AVERAGES = (*((title, shape, size, stride, 0) for title, shape, size, stride in POOLS),
            ("padding 1", (1, 4, 5, 2), 3, 2, 1), ("padding 1, windows of 2", (1, 3, 3, 2), 2, 1, 1))  # fmt: skip


def averages(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, shape, size, stride, pad in AVERAGES:
        x = rng.standard_normal(shape)
        other = {"average": "inside" if variant["average"] == "window" else "window"}
        suspects = {
            "the sum, and not the mean": shown(
                size**2 * avg_pool(x, size, stride, pad, {"average": "window"}), variant
            ),
            "divided by another number where a window reaches over the edge": shown(
                avg_pool(x, size, stride, pad, other), variant
            ),
        }
        want = shown(avg_pool(x, size, stride, pad, variant), variant)
        yield Values("avg_pool", (shown(x, variant), size, stride, pad), want, title=title, suspects=suspects)
    small = shown(x, variant).astype(np.float32)
    yield Values("avg_pool", (small, size, stride, pad), want.astype(np.float32), title="float32")


def averages_backward(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, shape, size, stride, pad in AVERAGES:
        x = shown(rng.standard_normal(shape), variant)
        args, right = (x, size, stride, pad), asked(avg_pool, variant)
        yield Gradient("avg_pool", "avg_pool_backward", args, title=title, right=right)
    args = (shown(rng.standard_normal((1, 400, 250, 1)), variant), 2, 2, 0)
    yield Gradient("avg_pool", "avg_pool_backward", args, title=LARGE, right=right, large=True)


# ----------------------------------------------------------------------------------------------- experiment


def covariances(x: Array, n: int, rng: np.random.Generator, variant: Variant) -> Array:
    """Return products of two pixels after the ReLU, averaged over n random channels, (HW, HW)."""
    h = conv(x, rng.standard_normal((3, 3, x.shape[3], n)), np.zeros(n), 1, 1, variant)
    a = np.maximum(h[0].reshape(-1, n), 0)
    return a @ a.T / n


def apart(a: Array, b: Array) -> float:
    """Return the distance between two arrays, divided by the norm of their mean."""
    return float(2 * np.linalg.norm(a - b) / np.linalg.norm(a + b))


def measurement(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title in ("a seed of the grader's", "another one"):
        seed, widths, draws = int(rng.integers(10**6)), (8, 32), 3
        x, pairs = data.problem(seed, "NHWC")[0], []
        for n in widths:
            for s in range(draws):
                rng_s = np.random.default_rng([seed, n, s])
                pairs.append([covariances(x, n, rng_s, variant) for _ in range(2)])
        want = np.reshape([apart(a, b) for a, b in pairs], (len(widths), draws))
        variances = np.reshape([apart(a.diagonal(), b.diagonal()) for a, b in pairs], want.shape)
        suspects = {
            "the variances alone: covariances of different pixels are missing": variances,
            "relative to the sum, and not to the mean of the two": want / 2,
        }
        args = (shown(x, variant), widths, draws, seed)
        yield Values("channel_noise", args, want, title=title, suspects=suspects, rtol=1e-7)


assignment = Assignment(
    "hw2_convolution",
    (
        Exercise("conv", 10, conv_plain, hint="your handout says where the channels are, and how the kernel lies"),
        Exercise("conv with stride and padding", 10, conv_moved, hint="(H + 2 pad - k) // stride + 1 rows come out"),
        Exercise("conv backward", 14, conv_plain_backward, hint="which outputs has one pixel of x been used for?"),
        Exercise(
            "conv backward with stride and padding", 12, conv_moved_backward,
            hint="every pixel gets a sum: += and not =; the gradient of the padding is cut off",
        ),
        Exercise("max pool", 8, max_plain),
        Exercise("max pool with padding", 6, max_padded, hidden=True, hint="what is smaller than every pixel?"),
        Exercise("max pool backward", 10, max_backward, hint="a pixel may be the largest of several windows"),
        Exercise("ties", 8, ties, hidden=True, hint="of equal entries the first in reading order takes all"),
        Exercise("average pool", 7, averages, hint="your handout says what is divided by at the edge"),
        Exercise("average pool backward", 9, averages_backward),
        Exercise("speed", 6, fast, hint="loop over the entries of the kernel, and not over pixels and channels"),
    ),
    variants={
        "layout": tuple(layout for layout in LAYOUTS if layout not in AUTHORS),
        "kernel": ("correlation", "convolution"),
        "average": ("window", "inside"),
    },
    authors={"layout": AUTHORS},
    tells=False,
    seconds=SECONDS,
)  # fmt: skip
assignment = with_experiment(
    assignment,
    measurement,
    hint="two layers of weights from one generator, one after the other; a mean over channels for each pair of pixels",
)
