"""Define the exercises of assignment 6, based on `mn.ABC` and `mn.coordinate_check`.

A table is judged by its effect. The initial sizes are tested with the correct rates for them, and the rates with the
correct initial sizes, so that each mistake costs only its own exercise.  The norms |W| and |dW| identify the wrong
tensors, as in `minintk.coordinate_check(...).blame`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import hw6_experiment as data  # type: ignore[import-not-found]  # beside this file
import numpy as np

import minintk as mn
from minintk.grade import (
    Assignment,
    Diagnosis,
    Exercise,
    Finding,
    Law,
    Submission,
    Values,
    hard_inputs,
    with_experiment,
)
from minintk.grade.exercise import Case

Array = Any
Variant = Mapping[str, Any]
Table = Mapping[str, tuple[float, ...]]
Triple = tuple[float, ...]

PLACES = ("input", "hidden", "output")
TENSORS = ("0.W", "2.W", "4.W")
GAINS = tuple(k / 100 for k in range(60, 141) if abs(k - 100) > 4)
"""Gains that multiply the activation. Each student's gain is drawn from these; the authors' gain 1 is not included."""
LAST = 0.1
"""w_std of the output weights, so small that f starts well below the targets."""
SIZES: dict[str, tuple[int, int, int, int]] = {
    "width 7": (5, 3, 7, 2),
    "width 4": (4, 4, 4, 4),
    "one example": (1, 2, 5, 1),
}

# ---------------------------------------------------------------------------------------------- the right answers


def rule(variant: Variant) -> Literal["sgd", "adam"]:
    """Return "sgd" or "adam", the rule for the rates; a sign step is an Adam step without memory."""
    return "sgd" if variant["optimizer"] == "sgd" else "adam"


def plain(variant: Variant) -> tuple[Triple, Triple]:
    """Return (b, c) of muP with a = 0."""
    right = mn.exponents(mn.SpectralMuP(), rule(variant))
    return right.b, right.c


def shift(variant: Variant) -> int:
    """Return k such that replacing a by a + s requires replacing c by c - k s."""
    return 2 if variant["optimizer"] == "sgd" else 1


def as_table(a: Sequence[float], b: Sequence[float], c: Sequence[float]) -> dict[str, tuple[float, float, float]]:
    """Return the table {"input": (a, b, c), ...}."""
    return {place: (float(p), float(q), float(r)) for place, p, q, r in zip(PLACES, a, b, c, strict=True)}


def parametrization(table: Table, variant: Variant) -> mn.ABC:
    """Return minintk's parametrization with this table."""
    a, b, c = zip(*(table[place] for place in PLACES), strict=True)
    return mn.ABC(a, b, c, rule(variant))


def network(d: int, n: int, C: int, table: Table, variant: Variant) -> mn.Network:
    """Build the network d -> n -> n -> C, with the activation gain * tanh and without biases."""
    return mn.Network(spec(n, C, variant["gain"]), (d,), parametrization(table, variant))


def spec(n: int, C: int, gain: float = 1.0) -> mn.Sequential:
    """Return the spec used in all parts; a table's exponents do not depend on the gain."""
    phi = mn.Sequential(mn.Tanh(), mn.Scale(gain))
    return mn.Sequential(mn.Dense(n), phi, mn.Dense(n), phi, mn.Dense(C, w_std=LAST))


def deviations(d: int, n: int, C: int, table: Table, variant: Variant) -> list[float]:
    """Return the standard deviations that minintk gives the three weight tensors."""
    layout = network(d, n, C, table, variant).layout
    return [float(tensor.row.std) for tensor in layout.tensors]


def drawn(seed: int, n: int, s: int, d: int, C: int) -> list[Array]:
    """Draw the normal random numbers of one network as the handout's `draw` does."""
    rng = np.random.default_rng([seed, n, s])
    return [rng.standard_normal(shape) for shape in ((d, n), (n, n), (n, C))]


def vector(net: mn.Network, weights: Sequence[Array]) -> Array:
    """Join three weight arrays into theta (P,), or three stacks of E arrays into theta (E, P)."""
    return np.concatenate([W.reshape(*W.shape[:-2], -1) for W in weights], axis=-1)


def started(
    seed: int, n: int, seeds: int, d: int, C: int, table: Table, variant: Variant, *, same: bool = False
) -> Array:
    """Return the initial weights (E, P) of networks 0 ... seeds - 1.

    same : True to use the same seeds at all widths.
    """
    normals = []
    for s in range(seeds):
        rng = np.random.default_rng([seed, s] if same else [seed, n, s])
        normals.append([rng.standard_normal(shape) for shape in ((d, n), (n, n), (n, C))])
    stds = deviations(d, n, C, table, variant)
    net = network(d, n, C, table, variant)
    return vector(net, [std * np.stack(some) for std, some in zip(stds, zip(*normals, strict=True), strict=True)])


def moved(net: mn.Network, theta: Array, x: Array, y: Array, lr: float, variant: Variant) -> Array:
    """Return theta after one step with the table's rates."""
    f, J = net.linearize(theta, x)
    g = J.vjp((f - y) / len(x))
    rates = np.concatenate([np.full(t.size, t.row.rate(rule(variant))) for t in net.layout.tensors])
    return theta - lr * rates * (g if variant["optimizer"] == "sgd" else np.sign(g))


def layers(net: mn.Network, theta: Array, x: Array) -> list[Array]:
    """Return the outputs of the three layers, [h1, h2, f]."""
    return [net.layer_outputs(theta, x)[at] for at in (0, 2, 4)]


def size(h: Array, variant: Variant) -> Array:
    """Return the root mean square or the mean absolute value of h, over examples and features."""
    return np.sqrt(np.mean(h**2, axis=(-2, -1))) if variant["size"] == "rms" else np.mean(np.abs(h), axis=(-2, -1))


def sized(
    net: mn.Network, theta: Array, x: Array, y: Array, lr: float, steps: int, variant: Variant
) -> tuple[Array, dict[str, Array]]:
    """Return the sizes (2, 3, [E]) after training, and {description of a mistake: sizes with this mistake}."""
    start = last = layers(net, theta, x)
    end = start
    for _ in range(steps):
        theta, last = moved(net, theta, x, y, lr, variant), end
        end = layers(net, theta, x)
    whole = [size(h, variant) for h in end]
    change = [size(h - h0, variant) for h, h0 in zip(end, start)]
    wrong = {
        "the change of the size, where the size of the change belongs": np.array(
            [whole, [abs(p - size(h0, variant)) for p, h0 in zip(whole, start)]]
        ),
        "the change in the last step only, and not since the start": np.array(
            [whole, [size(h - h0, variant) for h, h0 in zip(end, last)]]
        ),
        "the sizes at the start, and not after the last step": np.array([[size(h, variant) for h in start], change]),
    }
    return np.array([whole, change]), wrong


# ----------------------------------------------------------------------------------------------- 1: the table


@lru_cache
def examined(b: Triple, c: Triple, by: Literal["sgd", "adam"]) -> tuple[mn.CoordinateCheck | None, dict[str, str]]:
    """Return (the coordinate check of a table with a = 0, {quantity and tensor: the mistake}).

    The check is None if training diverges.  Four networks of each width usually reveal a wrong exponent.  If they show
    no mistake, up to 256 are drawn, until a verdict on the exponents of all |h| and |dh| is reached.
    """
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((16, 8)), rng.standard_normal((16, 2))
    optimizer = mn.SGD(lr=0.1) if by == "sgd" else mn.Adam(lr=0.02)
    check, wrong = None, {}
    for seeds, budget in ((4, None), (16, 256)):
        try:
            check = mn.coordinate_check(
                lambda n: spec(n, 2), x, y, parametrization=mn.ABC((0, 0, 0), b, c, by), optimizer=optimizer,
                loss=mn.mse, widths=(64, 128, 256), seeds=seeds, budget=budget, rng=rng,
            )  # fmt: skip
        except (FloatingPointError, OverflowError):
            return None, {}
        wrong = {f"{row.quantity} {row.name}": str(row) for row in check.rows if row.verdict == "fail"}
        if any(name.startswith(("W", "dW")) for name in wrong):
            break
    return check, wrong


def told(student: Submission) -> tuple[Triple, Triple, Triple] | str:
    """Return (a, b, c) of the submission's table, or a description of its mistake."""
    said = student.call("table")
    if not isinstance(said, dict) or set(said) != set(PLACES):
        return "table() is to give a dict of 'input', 'hidden' and 'output'"
    try:
        found = np.array([[float(value) for value in said[place]] for place in PLACES])
    except (TypeError, ValueError):
        return "each place of table() is to have three numbers (a, b, c)"
    if found.shape != (3, 3) or not np.all(np.isfinite(found)):
        return "each place of table() is to have three finite numbers (a, b, c)"
    a, b, c = (tuple(map(float, column)) for column in np.round(found, 9).T)
    return a, b, c


def judged(variant: Variant, what: Literal["W", "dW"], student: Submission) -> Any:
    """Find mistakes in the table's initial sizes (W), or in its rates (dW)."""
    found = told(student)
    if isinstance(found, str):
        return found
    (a, b, c), (right_b, right_c), k = found, plain(variant), shift(variant)
    start = tuple(round(p + q, 9) + 0.0 for p, q in zip(a, b)) if what == "W" else right_b
    rates = tuple(round(r + k * p, 9) + 0.0 for p, r in zip(a, c)) if what == "dW" else right_c
    check, wrong = examined(start, rates, rule(variant))
    if check is None:
        return "training diverges at the widths 64 to 256"
    names = {f"{what} {tensor}": place for tensor, place in zip(TENSORS, PLACES)}
    word, theory = ("initial size", "|W|") if what == "W" else ("learning rate", "the first |dW|")
    findings = [
        Finding(f"{names[key]} weights", word, f"the {word} is wrong: {theory} over sqrt(fan_out / fan_in) is n^({b})")
        for key, b in wrong.items()
        if key in names
    ]
    return Diagnosis(tuple(findings)) if findings else check.decision


def initial_sizes(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    yield Law("initial sizes, at widths 64 to 256", lambda student: judged(variant, "W", student))


def learning_rates(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    yield Law("learning rates, at widths 64 to 256", lambda student: judged(variant, "dW", student))


def convention(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    at, text = {
        "plain": (0, "every multiplier is 1 in your handout's convention: a = 0"),
        "unit": (1, "every weight starts from N(0, 1) in your handout's convention: b = 0"),
        "one_rate": (2, "every weight has the rate lr in your handout's convention: c = 0"),
    }[variant["convention"]]

    def law(student: Submission) -> str:
        found = told(student)
        return found if isinstance(found, str) else text if any(found[at]) else ""

    yield Law("the handout's convention", law)


def shifted(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for place in PLACES:
        table, s = some_table(rng), round(float(rng.uniform(-1, 1)), 3)
        by = [s if place == other else 0.0 for other in PLACES]
        new = parametrization(table, variant).shifted(*by)
        k = 3 - shift(variant)
        a, b, c = table[place]
        wrong = {**table, place: (a + s, b - s, c - k * s)}
        suspects = {"c moves by s or by 2 s, as the optimiser of your handout has it": wrong}
        yield Values("shifted", (table, place, s), as_table(new.a, new.b, new.c), title=place, suspects=suspects)


# -------------------------------------------------------------------------------------------- 2: the network


def some_table(rng: np.random.Generator) -> dict[str, tuple[float, float, float]]:
    """Draw a table with exponents that occur in no theory, so that omitting one is noticed."""
    return as_table(*np.round(rng.uniform(0.2, 0.6, (3, 3)) * rng.choice([-1, 1], (3, 3)), 3))


def problem(rng: np.random.Generator, N: int, d: int, C: int) -> tuple[Array, Array]:
    """Draw (x, y)."""
    return rng.standard_normal((N, d)), rng.standard_normal((N, C))


def weights(rng: np.random.Generator, d: int, n: int, C: int) -> list[Array]:
    """Draw the three weight matrices."""
    return [rng.standard_normal(shape) for shape in ((d, n), (n, n), (n, C))]


def initial(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, (_, d, n, C) in SIZES.items():
        table, seed = some_table(rng), int(rng.integers(1000))
        normals, stds = drawn(seed, n, 1, d, C), deviations(d, n, C, table, variant)
        want = [std * normal for std, normal in zip(stds, normals)]
        suspects = {
            "1 / sqrt(d) is missing at the input": [want[0] * np.sqrt(d), *want[1:]],
            "SIGMA is missing at the output": [*want[:2], want[2] / LAST],
            "n^-2b, the variance, where n^-b belongs": [
                float(n) ** -table[place][1] * W for place, W in zip(PLACES, want)
            ],
        }
        yield Values("initial", (seed, n, 1, d, C, table), want, title=title, suspects=suspects)


def forward(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, x in [("random", rng.standard_normal((4, 3))), *hard_inputs(rng, (3,))]:
        table, W = some_table(rng), weights(rng, 3, 5, 2)
        net = network(3, 5, 2, table, variant)
        want = layers(net, vector(net, W), x)
        suspects = {
            "after the activation, where `forward` gives what comes before it": [
                variant["gain"] * np.tanh(h) for h in want
            ]
        }
        yield Values("forward", (x, W, table), want, title=title, suspects=suspects)


def gradients(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    problems = [(title, problem(rng, N, d, C), n) for title, (N, d, n, C) in SIZES.items()]
    hard = [some for some in hard_inputs(rng, (3,)) if not some[0].startswith("large")]  # there 1 - tanh^2 rounds badly
    problems += [(title, (x, rng.standard_normal((len(x), 2))), 5) for title, x in hard]
    for title, (x, y), n in problems:
        table, W = some_table(rng), weights(rng, x.shape[1], n, y.shape[1])
        net = network(x.shape[1], n, y.shape[1], table, variant)
        f, J = net.linearize(vector(net, W), x)
        want = [np.array(g) for g in net.layout.unpack(J.vjp((f - y) / len(x))).values()]
        multipliers = [float(n) ** -table[place][0] for place in PLACES]
        suspects = {"dh/dW has the multiplier n^-a too": [g / m for g, m in zip(want, multipliers)]}
        yield Values("gradients", (x, y, W, table), want, title=title, suspects=suspects)


def step(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    other = {**variant, "optimizer": "sign" if variant["optimizer"] == "sgd" else "sgd"}
    for title, (N, d, n, C) in SIZES.items():
        (x, y), table, W = problem(rng, N, d, C), some_table(rng), weights(rng, d, n, C)
        found = []
        for some in (variant, other):
            net = network(d, n, C, table, some)
            theta = moved(net, vector(net, W), x, y, 0.3, some)
            found.append([np.array(p) for p in net.layout.unpack(theta).values()])
        suspects = {"this is the step of the other optimiser": found[1]}
        yield Values("step", (x, y, W, table, 0.3), found[0], title=title, suspects=suspects)


# --------------------------------------------------------------------------- 3: coordinate check; 4: transfer


def sizes(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, (N, d, n, C) in SIZES.items():
        (x, y), table, W = problem(rng, N, d, C), some_table(rng), weights(rng, d, n, C)
        net = network(d, n, C, table, variant)
        want, wrong = sized(net, vector(net, W), x, y, 0.1, 3, variant)
        yield Values("sizes", (x, y, W, table, 0.1, 3), want, title=title, suspects=wrong, rtol=1e-8)


def tables(variant: Variant) -> Iterator[tuple[str, Table]]:
    """Yield (title, table) for muP and for the standard parametrization."""
    yield "muP", as_table((0, 0, 0), *plain(variant))
    yield "standard", as_table((0, 0, 0), (0, 0.5, 0.5), (0, 0, 0) if variant["optimizer"] == "sgd" else (1, 1, 1))


def coordinate_check(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    x, y = problem(rng, 4, 3, 2)
    widths, seeds, lr, steps, seed = (4, 8, 24), 3, 0.05, 2, int(rng.integers(1000))
    for title, table in tables(variant):
        slopes, lines = [], []
        for same in (False, True):
            found = []
            for n in widths:
                net = network(3, n, 2, table, variant)
                theta = started(seed, n, seeds, 3, 2, table, variant, same=same)
                found.append(sized(net, theta, x, y, lr, steps, variant)[0])
            lines.append(np.array(found))  # (K, 2, 3, S)
            slopes.append(slope(widths, np.log(lines[-1]).mean(axis=-1)))
        suspects = {
            "the networks of different widths are drawn from the same seeds: use `draw`": slopes[1],
            "the logarithm of the means, where the mean of the logarithms belongs": slope(
                widths, np.log(lines[0].mean(axis=-1))
            ),
            "the sizes themselves, where their logarithms belong": slope(widths, lines[0].mean(axis=-1)),
        }
        args = (x, y, widths, seeds, table, lr, steps, seed)
        yield Values("coordinate_check", args, slopes[0], title=title, suspects=suspects, rtol=1e-8)


def slope(widths: Sequence[int], values: Array) -> Array:
    """Return the least-squares slopes of values (K, ...) against log n."""
    n = np.log(np.array(widths, dtype=float))
    n -= n.mean()
    return np.tensordot(n, values, 1) / (n @ n)


def vertex(rates: Array, losses: Array) -> float:
    """Return the rate at the parabola's vertex, from the slopes of two chords."""
    i, t = int(np.argmin(losses)), np.log(rates)
    if i in (0, len(rates) - 1):
        return float(rates[i])
    left, right = np.diff(losses[i - 1 : i + 2]) / np.diff(t[i - 1 : i + 2])
    middles = (t[i - 1 : i + 1] + t[i : i + 2]) / 2
    return float(np.exp(middles[0] - left * (middles[1] - middles[0]) / (right - left)))


def best_rate(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    even, uneven = 0.01 * 2.0 ** np.arange(6), np.array([0.01, 0.1, 0.2, 0.9, 3.0])
    for title, rates, best in (("even", even, 0.07), ("uneven", uneven, 0.13), ("next to the edge", uneven, 0.08)):
        losses = np.abs(np.log(rates / best)) ** 1.5 + float(rng.uniform())
        suspects = {"the best of the rates tried: a parabola finds the minimum between them": float(
            rates[np.argmin(losses)]
        )}  # fmt: skip
        yield Values("best_rate", (rates, losses), vertex(rates, losses), title=title, suspects=suspects)
    for title, losses in (("at the lower edge", np.arange(5.0)), ("at the upper edge", -np.arange(5.0))):
        yield Values("best_rate", (uneven, losses), vertex(uneven, losses), title=title)


def transfer(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    x, y = problem(rng, 4, 3, 2)
    widths, seeds, steps, seed = (4, 8, 16), 2, 4, int(rng.integers(1000))
    rates = (0.05 if variant["optimizer"] == "sgd" else 0.01) * 4.0 ** np.arange(5)
    for title, table in tables(variant):
        best = []
        for n in widths:
            net, losses = network(3, n, 2, table, variant), []
            for lr in rates:
                theta = started(seed, n, seeds, 3, 2, table, variant)
                for _ in range(steps):
                    theta = moved(net, theta, x, y, lr, variant)
                losses.append(np.log(np.sum((net(theta, x) - y) ** 2, axis=(-2, -1)) / (2 * len(x))).mean())
            best.append(vertex(rates, np.array(losses)))
        want = (np.array(best), float(slope(widths, np.log(best))))
        yield Values("transfer", (x, y, widths, seeds, rates, table, steps, seed), want, title=title, rtol=1e-6)


# ----------------------------------------------------------------------------------------------- experiment


def measurement(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    right = mn.exponents(mn.SpectralMuP(), rule(variant))
    mup = as_table(right.a, right.b, right.c)
    for title in ("a seed of the grader's", "another one"):
        seed, widths, seeds, steps = int(rng.integers(10**6)), (8, 32), 2, 3
        x, y, _, _, tables, lr, *_ = data.problem(seed, variant["optimizer"], mup)
        found, first = [], []
        for table in tables:
            for n in widths:
                net = network(x.shape[1], n, y.shape[1], table, variant)
                start = theta = started(seed, n, seeds, x.shape[1], y.shape[1], table, variant)
                for _ in range(steps):
                    theta = moved(net, theta, x, y, lr, variant)
                (g, h), (g0, h0) = (net.layer_outputs(at, x)[0:3:2] for at in (theta, start))
                found.append([size(h0, variant), size(h - h0, variant)])
                first.append([size(g0, variant), size(g - g0, variant)])
        shape = (3, 2, 2, seeds)
        want: Array = np.reshape(found, shape).transpose(0, 2, 1, 3)
        other: Array = np.reshape(first, shape).transpose(0, 2, 1, 3)
        suspects = {"this is the first hidden layer": other, "change and start are exchanged": want[:, ::-1]}
        args = (x, y, widths, seeds, tables, lr, steps, seed)
        yield Values("feature_sizes", args, want, title=title, suspects=suspects, rtol=1e-7)


assignment = Assignment(
    "hw6_mup",
    (
        Exercise("convention", 4, convention, hint="one of the columns a, b, c is 0 everywhere"),
        Exercise(
            "initial sizes", 12, initial_sizes, hint="|W| ~ std (sqrt(fan_in) + sqrt(fan_out)), times the multiplier"
        ),
        Exercise(
            "learning rates", 12, learning_rates, hint="the first step's |dW|, times the multiplier, in powers of n"
        ),
        Exercise("shift", 8, shifted, hint="which step of W changes the product n^-a W by the same amount?"),
        Exercise("initial weights", 10, initial, hint="std = SIGMA n^-b, and 1 / sqrt(d) more at the input"),
        Exercise("forward", 8, forward, hint="every layer has its multiplier, the first one too"),
        Exercise("gradients", 12, gradients, hint="check yours by differences of the loss"),
        Exercise("step", 10, step, hint="the width is that of the hidden layers in all three rates"),
        Exercise("sizes", 8, sizes, hint="first the difference, then its size"),
        Exercise("coordinate check", 8, coordinate_check, hint="a line through the logarithms of all networks' sizes"),
        Exercise("best rate", 4, best_rate, hint="three points fix a parabola; its variable is log(rate)"),
        Exercise("transfer", 4, transfer, hidden=True, hint="each network starts anew for each rate"),
    ),
    variants={
        "convention": ("plain", "unit", "one_rate"),
        "optimizer": ("sgd", "sign"),
        "size": ("rms", "abs"),
        "gain": GAINS,
    },
    authors={"gain": (1.0,)},
    tells=False,
    seconds=4.0,
)
assignment = with_experiment(
    assignment, measurement, hint="the size of h2 before the first step, and the size of its change after the last"
)
