"""Define the exercises of assignment 5, with networks from minintk and closed forms from analytic.

The exponents of the width and of alpha are measured with the submission's own functions. `minintk.grade.exponent` adds
seeds until a verdict is reached or the budget is spent, so no tolerance has to be chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import hw5_experiment as data  # type: ignore[import-not-found]  # beside this file
import numpy as np
from scipy.stats import linregress
from scipy.stats import t as student_t

import analytic as an
import minintk as mn
from minintk.grade import Assignment, Exercise, Law, Submission, Values, exponent, hard_inputs, with_experiment
from minintk.grade.exercise import Case

Array = Any
Variant = Mapping[str, Any]

ACTIVATIONS = {"tanh": mn.Tanh, "sin": mn.Sin, "erf": mn.Erf}
GAINS = tuple(k / 100 for k in range(60, 141) if abs(k - 100) > 4)
"""Gains that multiply the activation. Each student's gain is drawn from these; the authors' gain 1 is not included."""
SIZES = (("wide", 4, 3, 7), ("more examples than parameters", 9, 2, 2), ("one example, one neuron", 1, 3, 1))

# --------------------------------------------------------------------------------------------- the right answers


def network(shape: Sequence[int], variant: Variant) -> mn.Network:
    """Build f(x) = phi(x W / sqrt(d)) a / sqrt(n), where `shape` is the shape of W."""
    d, n = shape[-2:]
    phi = mn.Sequential(ACTIVATIONS[variant["activation"]](), mn.Scale(variant["gain"]))
    return mn.Network(mn.Sequential(mn.Dense(n), phi, mn.Dense(1)), (d,), mn.NTK())


def vector(W: Array, a: Array) -> Array:
    """Return (W, a) as one vector, or as E vectors, in the order of the network's layout."""
    return np.concatenate([W.reshape(*W.shape[:-2], -1), a], axis=-1)


def rate(lr: float, N: int, variant: Variant) -> float:
    """Return the factor that multiplies J' (f - y) in a step of gradient descent."""
    return lr / N if variant["loss"] == "mean" else lr


def descend(model: Any, theta: Array, x: Array, y: Array, step: float, steps: int) -> Array:
    """Return the outputs before the first step and after each step, (steps + 1, [E,] N)."""
    found = []
    for _ in range(steps + 1):
        f, J = model.linearize(theta, x)
        found.append(f[..., 0])
        theta = theta - step * J.vjp(f - y[:, None])
    return np.array(found)


def distance(f: Array, g: Array, variant: Variant) -> Array:
    """Return the supremum over t (axis 0) of the norm of f - g over the examples (the last axis)."""
    apart = np.abs(f - g)
    return (np.sqrt(np.mean(apart**2, axis=-1)) if variant["norm"] == "rms" else apart.max(axis=-1)).max(axis=0)


def deviations(x: Array, y: Array, W: Array, a: Array, lr: float, steps: int, variant: Variant) -> Array:
    """Return the largest distance during training between each network and its linearisation, () or (E,)."""
    net, theta, step = network(W.shape, variant), vector(W, a), rate(lr, len(y), variant)
    own = descend(mn.Linearized(net, theta), theta, x, y, step, steps)
    return distance(descend(net, theta, x, y, step, steps), own, variant)


def measured(
    x: Array, y: Array, widths: Sequence[int], seeds: int, lr: float, steps: int, seed: int, variant: Variant,
    *, same: bool = False,
) -> Array:  # fmt: skip
    """Return the deviations (K, seeds) of networks whose weights are drawn as in the handout's `draw`.

    same : True to use the same seeds at all widths.
    """
    d, found = x.shape[1], []
    for n in widths:
        rngs = [np.random.default_rng([seed, s] if same else [seed, n, s]) for s in range(seeds)]
        drawn = [(rng.standard_normal((d, n)), rng.standard_normal(n)) for rng in rngs]
        W, a = (np.stack(some) for some in zip(*drawn, strict=True))
        found.append(deviations(x, y, W, a, lr, steps, variant))
    return np.array(found)


def line(log_n: Array, log_v: Array, confidence: float) -> tuple[float, float, float]:
    """Fit a line with SciPy; return the slope and the ends of its interval, (slope, low, high)."""
    found = linregress(log_n, log_v)
    reach = float(student_t.ppf((1 + confidence) / 2, len(log_n) - 2) * found.stderr)
    return float(found.slope), float(found.slope - reach), float(found.slope + reach)


def fitted(widths: Sequence[int], values: Array, confidence: float) -> tuple[float, float, float]:
    """Fit A n^b to values (K, S); return b and the ends of its interval, (b, low, high)."""
    return line(np.repeat(np.log(widths), values.shape[1]), np.log(values).ravel(), confidence)


def decided(low: float, high: float, theory: float, against: float) -> str:
    """Return "pass", "fail" or "undecided", according to the rule of the handout's `verdict`."""
    half = abs(theory - against) / 2
    inside = (theory - half < low) + (high < theory + half)
    outside = high < theory - half or low > theory + half
    return "pass" if inside == 2 else "fail" if outside else "undecided"


# ---------------------------------------------------------------------------------------------------- inputs


def parameters(rng: np.random.Generator, d: int, n: int) -> tuple[Array, Array]:
    """Draw (W, a)."""
    return rng.standard_normal((d, n)), rng.standard_normal(n)


def problem(rng: np.random.Generator, N: int, d: int) -> tuple[Array, Array]:
    """Draw points on the sphere |x|^2 = d, with alternating labels +-1."""
    x = rng.standard_normal((N, d))
    return x * np.sqrt(d) / np.linalg.norm(x, axis=1, keepdims=True), np.where(np.arange(N) % 2, -1.0, 1.0)


def runs(rng: np.random.Generator, variant: Variant) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield (title, (x, y, W, a, lr, steps)) for short runs of networks that are narrow enough for features to move."""
    for title, N, d, n, steps in (
        ("width 6, 8 steps", 4, 3, 6, 8),
        ("width 40, 5 steps", 5, 2, 40, 5),
        ("one example, one step", 1, 3, 5, 1),
    ):
        x, y = problem(rng, N, d)
        yield title, (x, y, *parameters(rng, d, n), 0.7 if variant["loss"] == "mean" else 0.7 / N, steps)


# ------------------------------------------------------------------------------------------- 1: linearisation


def jvp(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, d, n in SIZES:
        x, (W, a), (dW, da) = rng.standard_normal((N, d)), parameters(rng, d, n), parameters(rng, d, n)
        f, J = network(W.shape, variant).linearize(vector(W, a), x)
        only_W, only_a = (J.jvp(vector(*v))[:, 0] for v in ((dW, 0 * da), (0 * dW, da)))
        suspects = {
            "only W moves: the change of a belongs to it too": only_W,
            "only a moves: the change of W belongs to it too": only_a,
            "the output itself is added, which belongs into f_lin": f[:, 0] + only_W + only_a,
        }
        yield Values("jvp", (x, W, a, dW, da), only_W + only_a, title=title, suspects=suspects)


def f_lin(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, d, n in SIZES:
        x, (W0, a0), (W, a) = rng.standard_normal((N, d)), parameters(rng, d, n), parameters(rng, d, n)
        net = network(W.shape, variant)
        lin = mn.Linearized(net, vector(W0, a0))
        suspects = {
            "this is the network itself": net(vector(W, a), x)[:, 0],
            "f0 is forgotten": (lin(vector(W, a), x) - net(vector(W0, a0), x))[:, 0],
            "linearised at (W, a) and not at (W0, a0)": mn.Linearized(net, vector(W, a))(vector(W0, a0), x)[:, 0],
        }
        yield Values("f_lin", (x, W0, a0, W, a), lin(vector(W, a), x)[:, 0], title=title, suspects=suspects)


def kernel(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    pool = [("random", rng.standard_normal((4, 3))), *hard_inputs(rng, (3,))]
    for title, x in pool:
        W, a = parameters(rng, 3, 5)
        net, theta = network(W.shape, variant), vector(W, a)
        want = mn.ntk(net, theta, x)
        features = net.layer_outputs(theta, x)[-2]
        suspects = {
            "the part of W is missing": features @ features.T / 5,
            "the part of a is missing": want - features @ features.T / 5,
        }
        yield Values("tangent_kernel", (x, W, a), want, title=title, suspects=suspects)


# ------------------------------------------------------------------------------------------------ 2: training


def _other(variant: Variant) -> dict[str, str]:
    return {**variant, "loss": "sum" if variant["loss"] == "mean" else "mean"}


NORMALISED = "the loss is normalised otherwise in your handout: 1/N for the mean, 1 for the sum"


def train(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, (x, y, W, a, lr, steps) in runs(rng, variant):
        net, theta, N = network(W.shape, variant), vector(W, a), len(y)
        want = descend(net, theta, x, y, rate(lr, N, variant), steps)
        suspects = {"this is the linearised network": descend(
            mn.Linearized(net, theta), theta, x, y, rate(lr, N, variant), steps
        )}  # fmt: skip
        if N > 1:
            suspects[NORMALISED] = descend(net, theta, x, y, rate(lr, N, _other(variant)), steps)
        yield Values("train", (x, y, W, a, lr, steps), want, title=title, suspects=suspects)


def train_lin(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, (x, y, W, a, lr, steps) in runs(rng, variant):
        net, theta, step = network(W.shape, variant), vector(W, a), rate(lr, len(y), variant)
        lin = mn.Linearized(net, theta)
        thetas = [theta]
        for _ in range(steps):
            f, J = net.linearize(thetas[-1], x)
            thetas.append(thetas[-1] - step * J.vjp(f - y[:, None]))
        suspects = {
            "the network is trained and f_lin evaluated on its way: the linearised network has a way of its own":
                np.array([lin(point, x)[:, 0] for point in thetas]),
            "this is the network itself": descend(net, theta, x, y, step, steps),
        }  # fmt: skip
        want = descend(lin, theta, x, y, step, steps)
        yield Values("train_lin", (x, y, W, a, lr, steps), want, title=title, suspects=suspects)


def centred(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, (x, y, W, a, lr, steps) in runs(rng, variant):
        net, theta, step = network(W.shape, variant), vector(W, a), rate(lr, len(y), variant)
        for alpha in (1.0, 4.0):
            model = mn.Centred(net, theta, alpha)
            suspects = {
                "the rate is lr / alpha, where lr / alpha^2 belongs": descend(model, theta, x, y, step / alpha, steps)
            }
            want = descend(model, theta, x, y, step / alpha**2, steps)
            args = (x, y, W, a, alpha, lr, steps)
            yield Values("train_centred", args, want, title=f"{title}, alpha {alpha:g}", suspects=suspects)


def learnt(rng: np.random.Generator, variant: Variant) -> tuple[str, tuple[Any, ...]]:
    """Return a training run on one example, which both the network and its linearisation fit at the end.

    Their outputs differ most during training, and agree at the end.
    """
    x, y = problem(rng, 1, 3)
    W, a = parameters(rng, 3, 40)
    half = 0.5 / float(mn.ntk(network(W.shape, variant), vector(W, a), x)[0, 0])  # each step halves the error; N = 1
    return "one example, learnt", (x, y, W, a, half, 30)


def deviation(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, (x, y, W, a, lr, steps) in (*runs(rng, variant), learnt(rng, variant)):
        net, theta, step = network(W.shape, variant), vector(W, a), rate(lr, len(y), variant)
        f = descend(net, theta, x, y, step, steps)
        g = descend(mn.Linearized(net, theta), theta, x, y, step, steps)
        infinite = np.asarray(
            an.gradient_descent(an.kernel(net.spec).ntk(x), y[:, None], lr=step * len(y)).predict(
                np.arange(steps + 1), f0=f[0][:, None]
            )
        )[..., 0]
        want = distance(f, g, variant)
        suspects = {
            "this is how far the network gets from f0": distance(f, f[0], variant),
            "the reference is the infinitely wide network, not this network's own linearisation":
                distance(f, infinite, variant),
            "squared": want**2,
            "at the end only, where the supremum over t belongs": distance(f[-1:], g[-1:], variant),
            "the other norm over the examples": distance(
                f, g, {"norm": "max" if variant["norm"] == "rms" else "rms"}
            ),
        }  # fmt: skip
        kept = {name: float(wrong) for name, wrong in suspects.items() if not np.isclose(wrong, want, rtol=1e-6)}
        yield Values("deviation", (x, y, W, a, lr, steps), float(want), title=title, suspects=kept, rtol=1e-8)


# ------------------------------------------------------------------------------------------------ 3: exponents


def measure(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    x, y = problem(rng, 3, 2)
    for widths, seeds in (((4, 8, 16), 3), ((5, 12), 1)):
        args = (x, y, widths, seeds, 1.0 if variant["loss"] == "mean" else 0.4, 12, int(rng.integers(1000)))
        suspects = {
            "the networks of different widths are drawn from the same seeds: use `draw`": measured(
                *args, variant, same=True
            )
        }
        title = f"{len(widths)} widths, {seeds} seeds"
        yield Values("measure", args, measured(*args, variant), title=title, suspects=suspects, rtol=1e-8)


def fit(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, widths, S, b, confidence in (
        ("eight seeds", (64, 128, 256), 8, -1.0, 0.95),
        ("three seeds, uneven widths", (10, 12, 100, 500), 3, 0.3, 0.99),
    ):
        values = np.exp(rng.standard_normal((len(widths), S))) * np.array(widths)[:, None] ** b
        log_n, means = np.log(widths), np.log(values).mean(axis=1)
        suspects = {
            "the values themselves, where their logarithms belong": line(
                np.repeat(log_n, S), values.ravel(), confidence
            ),
            "a line through the means of the logarithms: it forgets how far the seeds scatter": line(
                log_n, means, confidence
            ),
            "the logarithm of the means, where the seeds' own logarithms belong": line(
                log_n, np.log(values.mean(axis=1)), confidence
            ),
        }
        want = fitted(widths, values, confidence)
        yield Values("fit", (widths, values, confidence), want, title=title, suspects=suspects)


def verdict(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, low, high, theory, against in (
        ("inside", -1.1, -0.9, -1.0, -0.5),
        ("outside, above", -0.6, -0.4, -1.0, -0.5),
        ("across", -0.8, -0.7, -1.0, -0.5),
        ("outside, below", -2.1, -1.9, -1.0, -0.5),
        ("wider than everything", -3.0, 1.0, -1.0, -0.5),
        ("against lies below theory", -0.7, -0.3, -0.5, -1.0),
        ("theory is not in it, and it is still nearer", -0.95, -0.8, -1.0, -0.5),
    ):
        shift = float(rng.uniform(-1, 1))
        args = tuple(value + shift for value in (low, high, theory, against))
        yield Values("verdict", args, decided(low, high, theory, against), title=title)


def study(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    x, y = problem(rng, 3, 2)
    lr, seed = 1.0 if variant["loss"] == "mean" else 0.4, int(rng.integers(1000))
    widths, budget, level = (8, 32, 128), 8, 0.05
    found = measured(x, y, widths, budget, lr, 12, seed, variant)
    looks = [(S, *fitted(widths, found[:, :S], 1 - level / 2**k)) for k, S in enumerate((4, 8), 1)]
    lows, highs = [low for *_, low, _ in looks], [high for *_, high in looks]
    never, late = (max(lows) + min(highs)) / 2, (highs[0] + max(highs[1:])) / 2  # the borders between the exponents
    for title, theory, against in (
        ("theory is far off", 2.0, 1.0),
        ("never decided", never - 0.5, never + 0.5),
        ("decided with more seeds", late - 3, late + 3),
    ):
        told = [(decided(low, high, theory, against), S, b, low, high) for S, b, low, high in looks]
        want = next((some for some in told if some[0] != "undecided"), told[-1])
        yield Values(
            "study", (x, y, widths, lr, 12, seed, theory, against, budget, level), want, title=title, rtol=1e-8
        )


def width(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    def law(student: Submission) -> Any:
        x, y = problem(rng, 6, 4)
        lr = 1.0 if variant["loss"] == "mean" else 1 / 6

        def one(n: int, draws: np.random.Generator) -> float:
            return float(student.call("deviation", x, y, *parameters(draws, 4, n), lr, 8))

        return exponent(one, theory=-1, against=-0.5, budget=256, widths=(64, 256, 1024), rng=rng)

    yield Law("exponent of the width", law)


def scale(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    def law(student: Submission) -> Any:
        x, y = problem(rng, 6, 4)
        lr = 1.0 if variant["loss"] == "mean" else 1 / 6

        def one(alpha: int, draws: np.random.Generator) -> float:
            W, a = parameters(draws, 4, 64)
            kernel = mn.ntk(network(W.shape, variant), vector(W, a), x)
            lazy = an.gradient_descent(kernel, y[:, None], lr=rate(lr, 6, variant) * 6).predict(np.arange(9))
            F = np.asarray(student.call("train_centred", x, y, W, a, float(alpha), lr, 8))
            return float(distance(F, np.asarray(lazy)[..., 0], variant))

        return exponent(one, theory=-1, against=-0.5, budget=256, widths=(4, 16, 64), rng=rng)

    yield Law("exponent of alpha", law)


# ----------------------------------------------------------------------------------------------- experiment


def measurement(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title in ("a seed of the grader's", "another one"):
        seed, widths, seeds, steps = int(rng.integers(10**6)), (16, 64), 2, 20
        x, y, _, _, lr, *_ = data.problem(seed, variant["loss"])
        found: dict[str, list[float]] = {"kernel": [], "parameters": [], "size": []}
        for n in widths:
            for s in range(seeds):
                draw = np.random.default_rng([seed, n, s])
                W, a = draw.standard_normal((x.shape[1], n)), draw.standard_normal(n)
                net, start = network(W.shape, variant), vector(W, a)
                theta = start
                for _ in range(steps):
                    f, J = net.linearize(theta, x)
                    theta = theta - rate(lr, len(y), variant) * J.vjp(f - y[:, None])
                K0, K = (np.asarray(mn.ntk(net, at, x)) for at in (start, theta))
                found["kernel"].append(float(np.linalg.norm(K - K0)))
                found["size"].append(float(np.linalg.norm(K0)))
                found["parameters"].append(float(np.linalg.norm(theta - start) / np.linalg.norm(start)))
        kernel, size, parameters = (np.reshape(found[name], (2, seeds)) for name in ("kernel", "size", "parameters"))
        suspects = {
            "not relative: divide by the kernel of the start": kernel,
            "this is how far the parameters move": parameters,
        }
        args = (x, y, widths, seeds, lr, steps, seed)
        yield Values("movement", args, kernel / size, title=title, suspects=suspects, rtol=1e-7)


assignment = Assignment(
    "hw5_lazy",
    (
        Exercise("jvp", 10, jvp, hint="both W and a move; differentiate along the line (W + e dW, a + e da) at e = 0"),
        Exercise("f_lin", 8, f_lin, hint="f0 plus jvp at (W0, a0) of the difference"),
        Exercise("tangent kernel", 8, kernel, hint="jvp of vjp of each unit vector gives its columns"),
        Exercise("training", 12, train, hint="the gradient in f is (f - y) / N or f - y, as the handout's loss says"),
        Exercise("linearised training", 14, train_lin, hint="its Jacobian is that of (W0, a0) in every step"),
        Exercise("centred training", 10, centred, hint="the chain rule gives one factor alpha, the rate 1 / alpha^2"),
        Exercise("deviation", 10, deviation, hint="the same steps, the same start; first the norm, then the supremum"),
        Exercise("measure", 6, measure, hint="every number of the table comes from `draw`, with its own width"),
        Exercise("fit", 8, fit, hint="all K S logarithms at once; K S - 2 degrees of freedom"),
        Exercise("verdict", 4, verdict, hint="the border lies halfway between the two exponents"),
        Exercise("study", 3, study, hidden=True, hint="look k has the confidence 1 - level / 2^k"),
        Exercise("law of width", 4, width, hidden=True, hint="the linearised network is trained from the same start"),
        Exercise("law of scale", 3, scale, hidden=True, hint="at alpha = infinity only the kernel is left"),
    ),
    variants={"activation": ("tanh", "sin", "erf"), "loss": ("mean", "sum"), "norm": ("rms", "max"), "gain": GAINS},
    authors={"gain": (1.0,)},
    tells=False,
    allowed=("scipy",),
    seconds=4.0,
)
assignment = with_experiment(
    assignment,
    measurement,
    hint="train the network, not its linearisation; then the kernel at the end less the kernel at the start",
)
