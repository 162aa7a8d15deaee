"""Define the exercises of assignment 1.

The correct values come from NumPy, SciPy and minintk, the derivatives from finite differences, formulas and minintk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import hw1_experiment as data  # type: ignore[import-not-found]  # beside this file
import numpy as np
from scipy.special import log_softmax

import minintk as mn
from minintk.grade import Assignment, Exercise, Gradient, Law, Submission, Values, compare, hard_inputs, with_experiment
from minintk.grade.exercise import Case

Array = Any
Variant = Mapping[str, Any]

ACTIVATIONS = {"relu": mn.ReLU, "tanh": mn.Tanh, "softplus": mn.Softplus}
GAINS = tuple(k / 100 for k in range(60, 141) if abs(k - 100) > 4)
"""Gains that multiply the activation. Each student's gain is drawn from these; the authors' gain 1 is not included."""
SMOOTHINGS = tuple(k / 100 for k in range(5, 41))
"""Fractions s of label smoothing, from which each student's is drawn. The authors' fraction is 0."""
SIZES = (("more inputs than outputs", 5, 4, 3), ("as many outputs as inputs", 4, 3, 3), ("one example", 1, 3, 4))

# --------------------------------------------------------------------------------------------- the right answers


def affine(x: Array, W: Array, b: Array, variant: Variant) -> Array:
    """Return x W + b, or x W' + b if the variant transposes the weights."""
    return np.asarray(x @ (W if variant["weights"] == "in_out" else W.T) + b)


def phi(z: Array, variant: Variant) -> Array:
    """Return the activation, multiplied by the gain."""
    values = {"relu": np.maximum(z, 0), "tanh": np.tanh(z), "softplus": np.logaddexp(z, 0)}
    return np.asarray(variant["gain"] * values[variant["activation"]], dtype=z.dtype)


def targets(labels: Array, C: int, variant: Variant) -> Array:
    """Return the smoothed targets, (N, C): 1 - s + s / C at the label, and s / C elsewhere."""
    s = variant["smoothing"]
    return np.asarray((1 - s) * np.eye(C)[labels] + s / C)


def layer(rng: np.random.Generator, d: int, n: int, variant: Variant) -> tuple[Array, Array]:
    """Draw a weight matrix in the variant's layout, and a bias vector."""
    W = rng.standard_normal((d, n)) / np.sqrt(d)
    return (W if variant["weights"] == "in_out" else W.T.copy()), rng.standard_normal(n)


def parameters(rng: np.random.Generator, widths: Sequence[int], variant: Variant) -> list[Array]:
    """Return [W1, b1, W2, b2, ...]."""
    return [a for d, n in pairwise(widths) for a in layer(rng, d, n, variant)]


def problem(
    rng: np.random.Generator, N: int, widths: Sequence[int], variant: Variant
) -> tuple[Array, Array, list[Array]]:
    """Draw (x, labels, params)."""
    return rng.standard_normal((N, widths[0])), rng.integers(0, widths[-1], N), parameters(rng, widths, variant)


def built(params: Sequence[Array], variant: Variant) -> tuple[mn.Network, Array]:
    """Build minintk's network with these parameters; also return them as one vector."""
    turned = [p if p.ndim == 1 or variant["weights"] == "in_out" else p.T for p in params]
    layers: list[Any] = []
    for W in turned[::2]:
        phi = [ACTIVATIONS[variant["activation"]](), mn.Scale(variant["gain"])] if layers else []
        layers += [*phi, mn.Dense(W.shape[1], b_std=1.0)]
    net = mn.Network(mn.Sequential(*layers), (turned[0].shape[0],), mn.Standard())
    theta = np.concatenate([p.ravel() for p in turned])
    assert all(np.array_equal(a, p) for a, p in zip(net.layout.unpack(theta).values(), turned))
    return net, theta


def key(x: Array, labels: Array, params: Sequence[Array], variant: Variant) -> tuple[Any, list[Array]]:
    """Return (loss, gradients) from minintk."""
    net, theta = built(params, variant)
    f, J = net.linearize(theta, x)
    y = targets(labels, f.shape[1], variant)
    scale = len(x) if variant["loss"] == "sum" else 1
    grads = net.layout.unpack(J.vjp(scale * mn.softmax_cross_entropy.cotangent(f, y))).values()
    turned = [g if g.ndim == 1 or variant["weights"] == "in_out" else g.T.copy() for g in grads]
    return scale * mn.softmax_cross_entropy(f, y), turned


# ------------------------------------------------------------------------------------------------ one layer


def dense(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, d, n in SIZES:
        x, (W, b) = rng.standard_normal((N, d)), layer(rng, d, n, variant)
        suspects = {"the bias is forgotten": affine(x, W, 0 * b, variant)}
        if d == n:
            wrong, right = ("x W'", "x W") if variant["weights"] == "in_out" else ("x W", "x W'")
            suspects[f"{wrong} + b, where your handout has {right} + b"] = affine(x, W.T, b, variant)
        yield Values("dense", (x, W, b), affine(x, W, b, variant), title=title, suspects=suspects)
    x32, W32, b32 = (a.astype(np.float32) for a in (x, W, b))
    yield Values("dense", (x32, W32, b32), affine(x32, W32, b32, variant), title="float32")


LARGE = "a million weights"
"""Title of cases so large that differences and complex steps exceed the time limit."""


def dense_backward(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    right = partial(affine, variant=variant)
    for title, N, d, n in SIZES:
        args = rng.standard_normal((N, d)), *layer(rng, d, n, variant)
        yield Gradient("dense", "dense_backward", args, title=title, right=right)
    args = rng.standard_normal((1, 1000)), *layer(rng, 1000, 1000, variant)
    yield Gradient("dense", "dense_backward", args, title=LARGE, right=right, large=True)


def activation(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, z in hard_inputs(rng, (3,)):
        yield Values("activate", (z,), phi(z, variant), title=title)
    z32 = rng.standard_normal((4, 3)).astype(np.float32)
    yield Values("activate", (z32,), phi(z32, variant), title="float32")


SLOPE_AT_ZERO = {"relu": 0.0, "tanh": 1.0, "softplus": 0.5}


def activation_backward(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    right = partial(phi, variant=variant)
    yield Gradient("activate", "activate_backward", (rng.standard_normal((4, 3)),), title="random", right=right)
    u = rng.standard_normal((2, 3))

    def at_zero(student: Submission) -> Any:
        got, _ = student.pull("activate", "activate_backward", u, np.zeros((2, 3)))
        return compare("the gradient at z = 0", got, variant["gain"] * u * SLOPE_AT_ZERO[variant["activation"]])

    def slope(z: Array) -> Array:
        e = np.exp(-np.abs(z))
        some = {"relu": z > 0, "tanh": 4 * e * e / (1 + e * e) ** 2, "softplus": np.where(z > 0, 1, e) / (1 + e)}
        return variant["gain"] * some[variant["activation"]]

    def far_away(student: Submission) -> Any:
        z = np.array([[-800.0, 800.0, -50.0], [800.0, 40.0, 1.0]])  # at 40 tanh' is 7e-35, but 1 - tanh^2 rounds to 0
        got, _ = student.pull("activate", "activate_backward", u, z)
        return compare("the gradient at z = +-800", got, u * slope(z))

    def exact(student: Submission) -> Any:
        z, v = rng.standard_normal((2, 4, 3))
        got, _ = student.pull("activate", "activate_backward", v, z)
        return compare("the gradient", got, v * slope(z), rtol=2e-14)  # finite differences have larger rounding errors

    yield Law("to 13 digits", exact)
    yield Law("zero", at_zero)
    yield Law("far away", far_away)


# ----------------------------------------------------------------------------------------------------- loss


def softmax(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, C in (("random", 5, 3), ("as many classes as examples", 4, 4), ("one example", 1, 3)):
        z = rng.standard_normal((N, C))
        suspects = {
            "the sum runs over the examples, where it has to run over the classes": log_softmax(z, axis=0),
            "the sum runs over all entries, where each example has its own": log_softmax(z),
            "softmax, and not its logarithm": np.exp(log_softmax(z, axis=1)),
        }
        yield Values("log_softmax", (z,), log_softmax(z, axis=1), title=title, suspects=suspects)
    z32 = z.astype(np.float32)
    yield Values("log_softmax", (z32,), log_softmax(z32, axis=1).astype(np.float32), title="float32")


def extreme(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, z in hard_inputs(rng, (3,)):
        yield Values("log_softmax", (z,), log_softmax(z, axis=1), title=title)
    steps = np.array([[1000.0, 0.0, -1000.0], [0.0, 0.0, -2000.0], [-1000.0, -1001.0, -999.0]])
    yield Values("log_softmax", (steps,), log_softmax(steps, axis=1), title="logits of +-1000")


def loss(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, C in (("random", 5, 3), ("as many classes as examples", 4, 4), ("one example", 1, 3)):
        z, labels = rng.standard_normal((N, C)), rng.integers(0, C, N)
        mean = mn.softmax_cross_entropy(z, targets(labels, C, variant))
        right = mean * (N if variant["loss"] == "sum" else 1)
        suspects = {} if N == 1 else {
            "the sum, where your handout asks for the mean": mean * N,
            "the mean, where your handout asks for the sum": mean,
            "a mean over the classes too": right / C,
        }  # fmt: skip
        yield Values("cross_entropy", (z, labels), right, title=title, suspects=suspects)
    z32 = z.astype(np.float32)
    yield Values("cross_entropy", (z32, labels), np.float32(right), title="float32")


def loss_backward(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    def right(z: Array, labels: Array) -> Array:
        each = -np.sum(targets(labels, z.shape[1], variant) * log_softmax(z, axis=1), axis=1)
        return each.mean() if variant["loss"] == "mean" else each.sum()

    for title, N, C in (("random", 5, 3), ("as many classes as examples", 4, 4), ("one example", 1, 3)):
        z, labels = rng.standard_normal((N, C)), rng.integers(0, C, N)
        yield Gradient("cross_entropy", "cross_entropy_backward", (z, labels), title=title, right=right)
    args = rng.standard_normal((1000, 1000)), rng.integers(0, 1000, 1000)
    yield Gradient("cross_entropy", "cross_entropy_backward", args, title="a million logits", right=right, large=True)

    def certain(student: Submission) -> Any:
        z, labels = np.array([[1000.0, 0.0, -1000.0], [0.0, 1000.0, 0.0]]), np.array([0, 2])
        got, _ = student.pull("cross_entropy", "cross_entropy_backward", np.array(1.0), z, labels)
        right = (np.eye(3)[[0, 1]] - targets(labels, 3, variant)) / (2 if variant["loss"] == "mean" else 1)
        return compare("the gradient at logits of +-1000", got, right)

    yield Law("large logits", certain)


# ------------------------------------------------------------------------------------------------- the chain

NETWORKS = (("two layers", 5, (4, 3, 3)), ("three layers", 4, (3, 4, 4, 2)), ("one layer, one example", 1, (3, 4)))


def network(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, widths in NETWORKS:
        x, _, params = problem(rng, N, widths, variant)
        net, theta = built(params, variant)
        want = net(theta, x)
        suspects = {"the activation stands after the last layer too": phi(want, variant)}
        yield Values("network", (x, params), want, title=title, suspects=suspects)


def gradients(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, widths in NETWORKS:
        args = problem(rng, N, widths, variant)
        yield Values("gradients", args, key(*args, variant), title=title)
    x, labels, params = args
    loss, grads = key(*args, variant)
    many = problem(rng, 2, (500, 1000, 500), variant)
    yield Values("gradients", many, key(*many, variant), title=LARGE)
    small = (x.astype(np.float32), labels, [p.astype(np.float32) for p in params])
    want = (np.float32(loss), [g.astype(np.float32) for g in grads])
    yield Values("gradients", small, want, title="float32")


def total(parts: Sequence[tuple[Any, list[Array]]], weight: float = 1.0) -> tuple[Any, list[Array]]:
    """Return the sum of the parts' losses and the sums of their gradients, multiplied by `weight`."""
    return weight * sum(loss for loss, _ in parts), [weight * sum(some) for some in zip(*(g for _, g in parts))]


def in_parts(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    x, labels, params = args = problem(rng, 7, (3, 4, 2), variant)
    for title, size in (("parts of 3, 3 and 1", 3), ("one by one", 1), ("one part", 7), ("a part of all and more", 9)):
        parts = [key(x[i : i + size], labels[i : i + size], params, variant) for i in range(0, 7, size)]
        whole = 7 // size * size
        suspects = {} if len(parts) == 1 else {
            "the parts are added, each a mean of its own": total(parts),
            "the mean over the parts, where they are not equally large": total(parts, 1 / len(parts)),
            "the last part, which is smaller, is left out": key(x[:whole], labels[:whole], params, variant),
            "the last part alone": parts[-1],
        }  # fmt: skip
        yield Values("gradients_in_parts", (*args, size), key(*args, variant), title=title, suspects=suspects)
    many = problem(rng, 4, (200, 400, 200), variant)
    yield Values("gradients_in_parts", (*many, 3), key(*many, variant), title="160,000 weights")


def shared(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    x, (W, b) = rng.standard_normal((4, 3)), layer(rng, 3, 3, variant)
    want = affine(phi(affine(x, W, b, variant), variant), W, b, variant)
    yield Values("twice", (x, W, b), want, title="forward")

    def right(x: Array, W: Array, b: Array) -> Array:
        return affine(phi(affine(x, W, b, variant), variant), W, b, variant)

    yield Gradient("twice", "twice_backward", (x, W, b), title="backward", right=right)
    args = rng.standard_normal((1, 1000)), *layer(rng, 1000, 1000, variant)
    yield Gradient("twice", "twice_backward", args, title=LARGE, right=right, large=True)


# ------------------------------------------------------------------------------------------------- training


def sgd(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, shape, momentum in (("with momentum", (3, 2), 0.9), ("without", (4,), 0.0)):
        p, g, v = (rng.standard_normal(shape) for _ in range(3))
        moved = momentum * v + g
        suspects = {
            "the velocity before the step is used": (p - 0.1 * v, moved),
            "the gradient is multiplied by 1 - momentum": (
                p - 0.1 * (momentum * v + (1 - momentum) * g),
                momentum * v + (1 - momentum) * g,
            ),
            "uphill: the sign of the step": (p + 0.1 * moved, moved),
        }
        for kind in (np.float64, np.float32):
            args = tuple(a.astype(kind) for a in (p, g, v))
            want = tuple(a.astype(kind) for a in (p - 0.1 * moved, moved))
            yield Values("sgd", (*args, 0.1, momentum), want, title=f"{title}, {kind.__name__}", suspects=suspects)

    def untouched(student: Submission) -> str:
        _, changed = student.output("sgd", p, g, v, 0.1, 0.9)
        names = [("p", "g", "v")[i] for i in changed]
        return f"{' and '.join(names)} changed in place: give new arrays back" if names else ""

    yield Law("inputs", untouched)


def training(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    x, labels, params = problem(rng, 6, (3, 4, 2), variant)
    now, velocity, losses = params, [0 * p for p in params], []
    for _ in range(6):
        loss, grads = key(x, labels, now, variant)
        losses.append(loss)
        velocity = [0.5 * v + g for v, g in zip(velocity, grads)]
        now = [p - 0.05 * v for p, v in zip(now, velocity)]
    yield Values("train", (x, labels, params, 0.05, 0.5, 6), (now, np.array(losses)), title="six steps")


# ----------------------------------------------------------------------------------------------- experiment


def noise(
    x: Array, labels: Array, params: Sequence[Array], batches: Sequence[int], draws: int, seed: int, variant: Variant,
    *, replace: bool = True,
) -> tuple[Array, float]:  # fmt: skip
    """Return |g_B - g|, (K, draws), and |g|, for the mean gradients g_B of random batches and g of all examples.

    replace : True to draw examples with replacement.
    """

    def gradient(at: Array) -> Array:
        grads = key(x[at], labels[at], params, variant)[1]
        return np.concatenate([g.ravel() for g in grads]) / (len(at) if variant["loss"] == "sum" else 1)

    whole, found = gradient(np.arange(len(x))), []
    for B in batches:
        for s in range(draws):
            rng = np.random.default_rng([seed, B, s])
            at = rng.integers(len(x), size=B) if replace else rng.permutation(len(x))[:B]
            found.append(np.linalg.norm(gradient(at) - whole))
    return np.reshape(found, (len(batches), draws)), float(np.linalg.norm(whole))


def measurement(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title in ("a seed of the grader's", "another one"):
        seed = int(rng.integers(10**6))
        x, labels, params, *_ = data.problem(seed, variant["weights"])
        args = (x, labels, params, (16, 64, 256), 3, seed)
        apart, size = noise(*args, variant)
        suspects = {
            "not relative: divide by the length of the whole gradient": apart,
            "squared": (apart / size) ** 2,
            "the examples are drawn without replacement": noise(*args, variant, replace=False)[0] / size,
        }
        yield Values("batch_noise", args, apart / size, title=title, suspects=suspects, rtol=1e-7)


assignment = Assignment(
    "hw1_backprop",
    (
        Exercise("dense", 8, dense, hint="the handout says whether W is (d, n) or (n, d)"),
        Exercise("dense backward", 12, dense_backward, hint="write down dy/dW for one entry of W first"),
        Exercise("activation", 5, activation),
        Exercise("activation backward", 10, activation_backward, hint="phi' at z, not at phi(z), and finite at +-800"),
        Exercise("log softmax", 8, softmax),
        Exercise("large logits", 6, extreme, hidden=True, hint="each row has its own largest logit: subtract it"),
        Exercise("cross-entropy", 8, loss),
        Exercise("cross-entropy backward", 10, loss_backward, hint="differentiate the loss in one logit first"),
        Exercise("network", 5, network, hint="no activation after the last layer"),
        Exercise("gradients", 10, gradients, hint="hand u from layer to layer in the opposite order"),
        Exercise("gradients in parts", 5, in_parts, hidden=True, hint="the last part may be smaller than the others"),
        Exercise("weights used twice", 5, shared, hint="a tensor that is used twice gets a gradient from each use"),
        Exercise("sgd", 4, sgd),
        Exercise("training", 4, training, hidden=True),
    ),
    variants={
        "activation": ("relu", "tanh", "softplus"),
        "weights": ("in_out", "out_in"),
        "loss": ("mean", "sum"),
        "gain": GAINS,
        "smoothing": SMOOTHINGS,
    },
    authors={"gain": (1.0,), "smoothing": (0.0,)},
    tells=False,
    seconds=5.0,
)
assignment = with_experiment(
    assignment,
    measurement,
    hint="all gradients as one vector; a sum over B examples is compared with a sum over N only after a division",
)
