"""Define the exercises of assignment 3, with kernels from analytic and networks from minintk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import hw3_experiment as data  # type: ignore[import-not-found]  # beside this file
import numpy as np
from scipy.linalg import sqrtm
from scipy.special import erfc

import analytic as an
import minintk as mn
from analytic.textbook import erf_dual, relu_dual
from minintk.grade import Assignment, Exercise, Values, hard_inputs, with_experiment
from minintk.grade.exercise import Case

Array = Any
Variant = Mapping[str, Any]

GAINS = tuple(k / 100 for k in range(60, 141) if abs(k - 100) > 4)
"""Gains that multiply the activation. Each student's gain is drawn from these; the authors' gain 1 is not included."""

ROOT = 1e-6
"""Tolerance for roots of kernels: an eigenvalue of 0 that rounds to 1e-16 has the root 1e-8."""

PLAIN = 1e-7
"""Tolerance for an angle that is the arccos of a rounded cosine, which determines it only to 1.5e-8."""

# --------------------------------------------------------------------------------------------- the right answers


def spec(variant: Variant, depth: int, w_std: float, b_std: float, width: int = 1) -> mn.Sequential:
    """Return the spec of a network with `depth` hidden layers."""
    phi = mn.Sequential({"relu": mn.ReLU(), "erf": mn.Erf()}[variant["activation"]], mn.Scale(variant["gain"]))
    drawn = variant["bias"] == "drawn"
    layers: list[Any] = []
    for n in [width] * depth + [1]:
        layers += [mn.Dense(n, w_std=w_std, b_std=b_std, b_init="normal" if drawn else "zeros"), phi]
    return mn.Sequential(*layers[:-1])


def infinite(variant: Variant, x1: Array, x2: Array, depth: int, w_std: float, b_std: float) -> tuple[Array, Array]:
    """Return (NNGP, NTK), each of shape (N, M)."""
    nngp, ntk = an.kernel(spec(variant, depth, w_std, b_std)).both(x1, x2)
    return nngp, ntk


def finite(variant: Variant, d: int, params: tuple[Array, ...], w_std: float, b_std: float) -> tuple[mn.Network, Array]:
    """Build the network with one hidden layer and these parameters; also return them as one vector."""
    net = mn.Network(spec(variant, 1, w_std, b_std, params[0].shape[1]), (d,))
    return net, np.concatenate([p.ravel() for p in params])


def drawn(variant: Variant, rng: np.random.Generator, d: int, n: int) -> tuple[Array, ...]:
    """Draw (W, b, a, c) at initialisation, in the order that the handout gives."""

    def bias(size: int) -> Array:
        return rng.standard_normal(size) if variant["bias"] == "drawn" else np.zeros(size)

    return rng.standard_normal((d, n)), bias(n), rng.standard_normal(n), bias(1)


def moments(variant: Variant, K: Array, q1: Array, q2: Array) -> tuple[Array, Array]:
    """Return (E phi(u) phi(u'), E phi'(u) phi'(u'))."""
    dual = relu_dual if variant["activation"] == "relu" else erf_dual
    T, T_dot = dual(K, q1[:, None], q2[None, :])
    return variant["gain"] ** 2 * T, variant["gain"] ** 2 * T_dot


def by_columns(variant: Variant, K: Array, q1: Array, q2: Array) -> tuple[Array, Array]:
    """Return the moments as if the variances q1 belonged to the columns, like q2 (a common mistake)."""
    found = [moments(variant, K[:, [j]], np.full(len(K), q1[j]), q2[[j]]) for j in range(len(q1))]
    T, T_dot = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
    return T, T_dot


def mistaken(
    variant: Variant,
    x1: Array,
    x2: Array,
    depth: int,
    w_std: float,
    b_std: float,
    *,
    below: float = 1.0,
    slopes: bool = True,
    later: float = 1.0,
) -> tuple[Array, Array]:
    """Return (NNGP, NTK) with a part of the recursion omitted."""
    W, B, b = w_std**2, b_std**2, b_std**2 * (variant["bias"] == "drawn")
    K, q1, q2 = x1 @ x2.T / x1.shape[1], (x1**2).mean(1), (x2**2).mean(1)
    K, q1, q2, Theta = W * K + b, W * q1 + b, W * q2 + b, W * K + B
    for _ in range(depth):
        T, T_dot = moments(variant, K, q1, q2)
        q1, q2 = (W * moments(variant, np.diag(q), q, q)[0].diagonal() + later * b for q in (q1, q2))
        K, Theta = W * T + later * b, W * (T + below * Theta * (T_dot if slopes else 1)) + later * B
    return K, Theta


def between(x1: Array, x2: Array) -> Array:
    """Return angles (N, M), computed in the machine's widest floating-point type."""
    a, b = x1.astype(np.longdouble)[:, None, :], x2.astype(np.longdouble)[None, :, :]
    a, b = a * np.linalg.norm(b, axis=2, keepdims=True), b * np.linalg.norm(a, axis=2, keepdims=True)
    found = 2 * np.arctan2(np.linalg.norm(a - b, axis=2), np.linalg.norm(a + b, axis=2))
    return found.astype(np.float64)


def tested(samples: Array, theory: Array, level: float) -> tuple[Array, bool]:
    """Return (z, True if samples and theory agree at this level)."""
    z = (samples.mean(0) - theory) / (samples.std(0, ddof=1) / len(samples) ** 0.5)
    return z, bool(z.size * erfc(np.abs(z) / 2**0.5).min() >= level)


# --------------------------------------------------------------------------------------------- the recursion


def dense(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, shape in (("random", (3, 4)), ("as many as there are", (3, 3)), ("one pair", (1, 1))):
        K, Theta, w, b = rng.uniform(0.5, 2, shape), rng.uniform(1, 3, shape), 1.3, 0.7
        W, B, drawn = w**2, b**2, float(variant["bias"] == "drawn")
        first = W * K + drawn * B
        right = (first, W * Theta + W * K + B)
        suspects = {
            "the standard deviations are not squared": (w * K + drawn * b, w * Theta + w * K + b),
            "this layer's own weights give nothing to Theta": (first, W * Theta + B),
            "the bias is missing in Theta, though it is trained": (first, W * Theta + W * K),
            "biases that start at zero have no variance": (W * K + B, right[1]),
            "drawn biases have a variance": (W * K, right[1]),
        }
        yield Values("dense", (K, Theta, w, b), right, title=title, suspects=suspects)


def dual(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, M, d in (("two sets", 3, 4, 5), ("as many in both", 3, 3, 5), ("one pair", 1, 1, 3)):
        x1, x2 = rng.standard_normal((N, d)), 1.7 * rng.standard_normal((M, d))
        K, q1, q2 = x1 @ x2.T / d, (x1**2).mean(1), (x2**2).mean(1)
        T, T_dot = moments(variant, K, q1, q2)
        suspects = {"the slope's expectation is half of what it should be": (T, T_dot / 2)}
        if variant["activation"] == "relu":
            suspects = {"pi stands where 2 pi belongs": (2 * T, 2 * T_dot)} | suspects
        if N == M > 1:
            with np.errstate(invalid="ignore"):  # correlations beyond 1
                suspects["q1 and q2 change places: q1 belongs to the rows"] = moments(variant, K, q2, q1)
                suspects["q1 runs along the columns, where it belongs to the rows"] = by_columns(variant, K, q1, q2)
        yield Values("dual", (K, q1, q2), (T, T_dot), title=title, suspects=suspects)


def dual_hard(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, x in hard_inputs(rng):
        K, q = x @ x.T / x.shape[1], (x**2).mean(1)
        yield Values("dual", (K, q, q), moments(variant, K, q, q), title=title, rtol=PLAIN)


def kernels(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for depth, N, M, d in ((0, 2, 3, 4), (1, 3, 3, 3), (2, 2, 4, 3), (3, 1, 1, 5)):
        args = (rng.standard_normal((N, d)), rng.standard_normal((M, d)), depth, 1.2, 0.4)
        want = infinite(variant, *args)
        suspects = {}
        if depth:
            suspects = {
                "the biases are forgotten": infinite(variant, *args[:4], 0.0),
                "a layer is missing": infinite(variant, *args[:2], depth - 1, 1.2, 0.4),
                "Theta lacks what comes from the layers below": mistaken(variant, *args, below=0.0),
                "the slopes are missing in Theta": mistaken(variant, *args, slopes=False),
                "only the first layer's bias counts": mistaken(variant, *args, later=0.0),
                "this is K": (want[0], want[0]),
            }
        yield Values("kernels", args, want, title=f"depth {depth}", suspects=suspects)


def kernels_hard(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for b_std in (0.0, 0.5):
        for title, x in hard_inputs(rng):
            args = (x, x, 2, 1.4, b_std)
            yield Values("kernels", args, infinite(variant, *args), title=f"{title}, b_std = {b_std:g}", rtol=PLAIN)


def deep(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    args = (rng.standard_normal((3, 4)), rng.standard_normal((2, 4)), 30, 1.4, 0.1)
    yield Values("kernels", args, infinite(variant, *args), title="depth 30", rtol=PLAIN)


# ---------------------------------------------------------------------------------------------------- angles


def angles(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, M, d in (("random", 3, 5, 4), ("in the plane", 4, 4, 2), ("one pair", 1, 1, 3)):
        x1, x2 = rng.standard_normal((N, d)), 3 * rng.standard_normal((M, d))
        right = between(x1, x2)
        suspects = {
            "cosines, and not angles": np.cos(right),
            "degrees": np.degrees(right),
            "an angle beyond 90 degrees comes out as what it lacks to 180": np.minimum(right, np.pi - right),
        }
        yield Values("angles", (x1, x2), right, title=title, suspects=suspects)


def near_parallel(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for apart in (1e-5, 1e-9):
        for title, length in (("equal lengths", 1.0), ("unequal lengths", 3.7)):
            x = rng.standard_normal((1, 6))
            near = length * (x + apart * rng.standard_normal((4, 6)))
            yield Values("angles", (x, near), between(x, near), title=f"{apart:g} apart, {title}", rtol=1e-6)
    for title, x in hard_inputs(rng):
        if not title.startswith(("zero", "ties")):  # the angle with a vector of zeros is undefined
            other = np.concatenate([x, rng.standard_normal((1, x.shape[1]))])  # ensures that not all angles are 0
            yield Values("angles", (x, other), between(x, other), title=title, rtol=PLAIN)


# ------------------------------------------------------------------------------------------- finite networks

NETWORKS = (("random", 3, 4, 3, 5), ("all sizes equal", 3, 3, 3, 3), ("one unit", 2, 3, 4, 1), ("one pair", 1, 1, 3, 4))


def problem(
    rng: np.random.Generator, N: int, M: int, d: int, n: int
) -> tuple[Array, Array, tuple[Array, Array, Array, Array]]:
    """Draw (x1, x2, params) with nonzero biases, as in a trained network."""
    params = (rng.standard_normal((d, n)), rng.standard_normal(n), rng.standard_normal(n), rng.standard_normal(1))
    return rng.standard_normal((N, d)), rng.standard_normal((M, d)), params


def output(variant: Variant, x: Array, W: Array, b: Array, a: Array, c: Array) -> Array:
    """Return f of the finite network with these parameters."""
    net, theta = finite(variant, x.shape[1], (W, b, a, c), 1.3, 0.6)
    return net(theta, x)[:, 0]


def network(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, M, d, n in NETWORKS:
        x, _, params = problem(rng, N, M, d, n)

        f = partial(output, variant, x)
        W, b, a, c = params
        suspects = {
            "the biases are forgotten": f(W, 0 * b, a, 0 * c),
            "the biases are added without b_std": f(W, b / 0.6, a, c / 0.6),
            "1 / sqrt(d) is missing in the first layer": f(W * d**0.5, b, a, c),
            "1 / sqrt(n) is missing in the last layer": f(W, b, a * n**0.5, c),
        }
        yield Values("network", (x, params, 1.3, 0.6), f(*params), title=title, suspects=suspects)


def empirical(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, M, d, n in (*NETWORKS, ("one set", 3, 3, 4, 5)):
        x1, x2, params = problem(rng, N, M, d, n)
        x2 = x1 if title == "one set" else x2
        net, theta = finite(variant, d, params, 1.3, 0.6)
        want = mn.ntk(net, theta, x1, x2)
        first = below(net, theta, x1, x2, "0.W", "0.b")
        suspects = {
            "only the last layer counts": want - first,
            "the bias of the first layer is forgotten": want - below(net, theta, x1, x2, "0.b"),
            "the bias of the last layer is forgotten": want - 0.6**2,
            "the biases are forgotten": want - below(net, theta, x1, x2, "0.b", "2.b"),
            "the last bias has the derivative 1, where b_std multiplies it": want - 0.6**2 + 1,
            "w_std of the last layer is missing in the derivatives of the first": want - first + first / 1.3**2,
        }
        yield Values("empirical_ntk", (x1, x2, params, 1.3, 0.6), want, title=title, suspects=suspects)


def below(net: mn.Network, theta: Array, x1: Array, x2: Array, *names: str) -> Array:
    """Return the contribution of the named tensors to the kernel."""
    J1, J2 = (net.linearize(theta, x)[1].dense()[:, 0] for x in (x1, x2))
    rows = net.layout.unpack(J1), net.layout.unpack(J2)
    return sum(rows[0][name].reshape(len(x1), -1) @ rows[1][name].reshape(len(x2), -1).T for name in names)


def otherwise(variant: Variant, rng: np.random.Generator, d: int, n: int) -> tuple[Array, ...]:
    """Draw (W, b, a, c) in another order: weights before biases or, if there are no biases, a before W."""
    if variant["bias"] == "drawn":
        W, a, b, c = (rng.standard_normal(shape) for shape in ((d, n), n, n, 1))
        return W, b, a, c
    a, W = rng.standard_normal(n), rng.standard_normal((d, n))
    return W, np.zeros(n), a, np.zeros(1)


def sampled(
    variant: Variant, x: Array, width: int, seeds: Array, w_std: float, b_std: float, drawn: Any = drawn
) -> Array:
    """Return empirical kernels (S, N, N) of the networks that the handout asks for."""
    some = [drawn(variant, np.random.default_rng(int(seed)), x.shape[1], width) for seed in seeds]
    nets = [finite(variant, x.shape[1], params, w_std, b_std) for params in some]
    return np.array([mn.ntk(net, theta, x) for net, theta in nets])


def samples(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, d, width, S in (("three networks", 3, 4, 5, 3), ("one network", 2, 3, 3, 1)):
        x, seeds = rng.standard_normal((N, d)), rng.permutation(1000)[:S]
        right = sampled(variant, x, width, seeds, 1.3, 0.6)
        one = np.random.default_rng(int(seeds[0]))
        apart = [finite(variant, d, drawn(variant, one, d, width), 1.3, 0.6) for _ in seeds]
        suspects = {
            "the arrays are drawn in another order": sampled(variant, x, width, seeds, 1.3, 0.6, drawn=otherwise),
            "one generator for all seeds": np.array([mn.ntk(net, theta, x) for net, theta in apart]),
            "the same network every time": np.repeat(right[:1], S, axis=0),
            "the mean, and not each network's own": np.repeat(right.mean(0)[None], S, axis=0),
        }
        args = (x, width, seeds.tolist(), 1.3, 0.6)
        some = suspects if S > 1 else dict([*suspects.items()][:1])
        yield Values("sample", args, right, title=title, suspects=some)


def z_test(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, S, z in (
        ("few samples", 5, rng.uniform(-1, 1, (2, 3))),
        ("20 numbers, one of them at z = 2.5", 40, np.append(rng.uniform(-1, 1, 19), 2.5)),
        ("20 numbers, one of them at z = 3.5", 40, np.append(rng.uniform(-1, 1, 19), 3.5)),
        ("20 numbers, one of them at z = -3.5", 40, np.append(rng.uniform(-1, 1, 19), -3.5)),
        ("one number at z = 1.8", 50, np.array([1.8])),
    ):
        theory, spread = rng.uniform(-1, 1, z.shape), rng.uniform(0.5, 2, z.shape)
        noise = rng.standard_normal((S, *z.shape))
        noise = (noise - noise.mean(0)) / noise.std(0, ddof=1)
        values = theory + spread * (noise + z / S**0.5)
        right, agrees = tested(values, theory, 0.05)
        suspects = {
            "the samples' own standard deviation, where that of their mean belongs": (right / S**0.5, agrees),
            "a standard deviation that divides by S, where S - 1 belongs": (right * (S / (S - 1)) ** 0.5, agrees),
            "the sign: it is samples minus theory": (-right, agrees),
        }
        yield Values("z_test", (values, theory, 0.05), (right, agrees), title=title, rtol=1e-7, suspects=suspects)


def experiment(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    x, seeds = rng.standard_normal((3, 4)), rng.permutation(1000)[:60]
    samples = sampled(variant, x, 8, seeds, 1.3, 0.6)
    theory, other = infinite(variant, x, x, 1, 1.3, 0.6)[::-1]
    suspects = {"it is compared with the NNGP": tested(samples, other, 1e-4)}
    args = (x, 8, seeds.tolist(), 1.3, 0.6, 1e-4)
    yield Values("experiment", args, tested(samples, theory, 1e-4), title="60 networks", rtol=1e-6, suspects=suspects)


# ----------------------------------------------------------------------------------------------- experiment


def measurement(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    x, w_std, b_std = data.circle(48), 1.3, 0.4
    seed, known, y = int(rng.integers(10**6)), np.array([3, 17, 30]), rng.standard_normal(3)
    K, Theta = infinite(variant, x, x, 1, w_std, b_std)

    def draws(kernel: Array, count: int, seed: Any) -> Array:
        z = np.random.default_rng(seed).standard_normal((len(kernel), count))
        return np.real(sqrtm(kernel + 1e-15 * np.trace(kernel) * np.eye(len(kernel)))) @ z

    f, z = draws(Theta, 4, seed), np.random.default_rng(seed).standard_normal((48, 4))
    suspects = {
        "a Cholesky factor, where the symmetric root belongs": np.linalg.cholesky(Theta + 1e-12 * np.eye(48)) @ z,
        "the kernel itself, where its root belongs": Theta @ z,
    }
    yield Values("draw_functions", (Theta, 4, seed), f, title="draws", suspects=suspects, rtol=ROOT)
    inverse = np.linalg.inv(Theta[np.ix_(known, known)])
    mean = Theta[:, known] @ inverse @ y[:, None]
    fixed = f - Theta[:, known] @ inverse @ f[known] + mean
    suspects = {"the mean is added, and the draw is not corrected": f + mean, "the mean alone": mean + 0 * f}
    yield Values("condition", (Theta, f, known, y), fixed, title="posterior", suspects=suspects, rtol=ROOT)
    lags = (1, 3)
    right: list[Array] = []
    same: list[Array] = []
    for kernel in (K, Theta):
        for lag in lags:
            for found, stream in ((right, [seed, lag]), (same, seed)):
                g = draws(kernel, 3, stream)
                found.append(np.sqrt(np.mean((np.roll(g, -lag, axis=0) - g) ** 2, axis=0)))
    want = np.reshape(right, (2, 2, 3))
    suspects = {
        "mean squares, without the root": want**2,
        "the row of Theta comes first": want[::-1],
        "the same draws for all lags": np.reshape(same, (2, 2, 3)),
    }
    args = (x, lags, 3, seed, w_std, b_std)
    yield Values("roughness", args, want, title="a seed of the grader's", suspects=suspects, rtol=ROOT)


assignment = Assignment(
    "hw3_kernels",
    (
        Exercise("dense", 8, dense, hint="where does the bias stand at the start, and is it trained?"),
        Exercise("dual", 14, dual, hint="check E phi(u)^2 for q = q' = K against an average over random u"),
        Exercise("kernels", 12, kernels, hint="K needs the variances of both inputs at every layer: carry them along"),
        Exercise("angles", 6, angles),
        Exercise("near-parallel", 8, near_parallel, hidden=True, hint="cos a = 1 - a^2/2 rounds to 1 for a = 1e-9"),
        Exercise("dual on hard inputs", 8, dual_hard, hidden=True, hint="can a rounded cosine lie outside of [-1, 1]?"),
        Exercise("kernels on hard inputs", 6, kernels_hard, hidden=True, hint="an input of zeros, and equal inputs"),
        Exercise("deep", 4, deep, hidden=True),
        Exercise("network", 4, network, hint="w_std, b_std, the root of d and the root of n: each has its place"),
        Exercise("empirical kernel", 12, empirical, hint="one term for each of the four tensors"),
        Exercise("samples", 6, samples, hint="a new generator for each seed, and the handout's order of drawing"),
        Exercise("z-test", 8, z_test, hint="the largest of 20 values of z may be larger than one alone"),
        Exercise("experiment", 4, experiment),
    ),
    variants={"activation": ("relu", "erf"), "bias": ("drawn", "zero"), "gain": GAINS},
    authors={"gain": (1.0,)},
    tells=False,
    allowed=("scipy",),
    seconds=3.0,
)
assignment = with_experiment(
    assignment, measurement, hint="draw with the symmetric root; correct each draw by its own error at the known inputs"
)
