"""Simulate feature learning at infinite width, for any activation and depth, from sampled neurons (mean-field theory).

The scales are as in `analytic.limits.linear_problem`: f is 1/(gamma0 sqrt(n)) f_net minus its initial value, trained at
rate lr gamma0^2 n.  Layer l has pre-activations h^l and outputs phi^l = phi(h^l).  The drive is e = (y - f)/N.  Each
output has backward signals z^l at phi^l and g^l = gamma0 n df/dh^l = phi'(h^l) z^l at h^l.  Sums over steps s include
examples and outputs.  A step adds lr gamma0 sigma_l/sqrt(n) sum g^{l+1} e phi^l' to W^l.  Let chi = sigma_l/sqrt(n)
W^l(0) phi^l, xi = sigma_l/sqrt(n) W^l(0)' g^{l+1}, Phi^l = phi^l . phi^l / n and G^l = g^l . g^l / n over time.  Then

    h^{l+1}(k) = chi(k) + lr gamma0 sigma_l^2 sum_{s<k} Phi^l(k, s) e(s) g^{l+1}(s)
    z^l(k)     = xi(k)  + lr gamma0 sigma_l^2 sum_{s<k} G^{l+1}(k, s) e(s) phi^l(s)

As n -> infinity, kernels become means < > over neurons.  A layer's neurons become independent samples of one process,
with Gaussian fields u, r and responses to the signals that W^l(0) transmitted earlier (Bordelon and Pehlevan 2022):

    chi = u + gamma0 sigma_l^2 sum_{s<k}  A^l(k, s) g^{l+1}(s)       A^l = <d phi^l(k) / dr(s)> / gamma0
    xi  = r + gamma0 sigma_l^2 sum_{s<=k} B^{l+1}(k, s) phi^l(s)     B^l = <d g^l(k) / du(s)> / gamma0
    cov u = sigma_l^2 Phi^l,    cov r = sigma_l^2 G^{l+1},           f = <phi^L z^L> / gamma0

As g(k) depends on u(k), B has a term at s = k, <phi''(h) z> / gamma0.  It vanishes at the start, when z is independent
of h.  For ReLU, phi'' is a delta function.  Stein's lemma, sum_s <dg(k)/du(s)> cov(u(s), u(t)) = <g(k) u(t)>, gives the
responses without phi'', as covariances of known samples.  For n samples, chi and xi then have the law of products with
a Gaussian matrix, given its earlier products (`DeferredGaussian`).  Therefore n samples have the law of a network of
width n, whose (n, n) weights are never drawn.  Results differ from the limit by O(n^-1/2), and their means by O(1/n).

Gradient flow up to a time t is the limit lr -> 0 with lr * steps = t; the error of descent is O(lr).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from analytic.limits.linear_problem import check_data, hidden_layers
from analytic.limits.steps import Steps, check_optimizer
from analytic.training.eigen import check_memory
from minintk import spec as s
from minintk.arrays import Array, array_namespace, to_host, to_library
from minintk.layers.activation import Pointwise, pointwise
from minintk.training.optimizers import SGD, Adam
from minintk.validate import generator, number, whole


class DeferredGaussian:
    """A matrix W : (n, n), known only through its products W Q and W' P; `add` changes W within the spans of P and Q.

    moved : D, (n, n), or None.  With D, the products are those of W + D.
    draw : (rows, columns) -> independent N(0, 1) numbers, in the array library of the vectors used later.

    >>> import numpy as np
    >>> W = DeferredGaussian(3, lambda *shape: np.random.default_rng(0).standard_normal(shape))
    >>> u, v = np.array([[1.0], [0.0], [2.0]]), np.array([[1.0], [1.0], [0.0]])
    >>> Wv = W.times(v)
    >>> bool(np.allclose(u.T @ Wv, W.transposed_times(u).T @ v))      # u' (W v) = (W' u)' v
    True
    """

    def __init__(self, n: int, draw: Callable[[int, int], Array]) -> None:
        self.draw = draw
        self.Q = self.WQ = self.P = self.WtP = draw(n, 0)
        self.moved: Array | None = None

    def times(self, v: Array) -> Array:
        """Return W v, for v : (n, k)."""
        self.Q, self.WQ = self._known(v, self.Q, self.WQ, self.P, self.WtP)
        return self.WQ @ (self.Q.T @ v) + (0.0 if self.moved is None else self.moved @ v)

    def transposed_times(self, u: Array) -> Array:
        """Return W' u, for u : (n, k)."""
        self.P, self.WtP = self._known(u, self.P, self.WtP, self.Q, self.WQ)
        return self.WtP @ (self.P.T @ u) + (0.0 if self.moved is None else self.moved.T @ u)

    def add(self, u: Array, v: Array) -> None:
        """Add u v' to W, for u and v : (n, k) in the spans of P and Q."""
        self.WQ = self.WQ + u @ (v.T @ self.Q)
        self.WtP = self.WtP + v @ (u.T @ self.P)

    def _known(self, v: Array, Q: Array, WQ: Array, P: Array, WtP: Array) -> tuple[Array, Array]:
        """Extend (Q, W Q) by directions of v that Q lacks; parts smaller than 1e-10 |v| count as rounding errors."""
        xp = array_namespace(v, Q)
        q, size, _ = xp.linalg.svd(v - Q @ (Q.T @ v), full_matrices=False)
        q = q[:, size > 1e-10 * xp.linalg.vector_norm(v)]
        if q.shape[1] == 0:
            return Q, WQ
        q, _ = xp.linalg.qr(q - Q @ (Q.T @ q))  # again, because the difference of nearly equal vectors is inexact
        q = q * xp.where(q[0] < 0, -1.0, 1.0)  # gives the same signs on all machines
        z = self.draw(*q.shape)
        return xp.concat([Q, q], axis=1), xp.concat([WQ, P @ (WtP.T @ q) + z - P @ (P.T @ z)], axis=1)


GROUPS = 16
"""Number of independent groups of samples: enough for a standard error, and few enough that each group is wide."""


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory:
    """Results after 0 ... K steps of descent, at M examples: the training set, followed by x_test.

    f : (K + 1, M, C).  features : (K + 1, L, M, M), Phi^l(k, k) of hidden layer l = 1 ... L at index l - 1.
    gradients : tr G^l(k, k) / C, likewise.  ntk : (K + 1, M, M), sum_l (sigma_l^2 Phi^l + b_l^2) tr G^{l+1} / C.
    """

    f: Array
    features: Array
    gradients: Array
    ntk: Array


@dataclass(frozen=True, eq=False, repr=False)
class FeatureLearningLimit(Trajectory):
    """Means of results over groups of samples; built by `feature_learning_limit`.  error : their standard errors."""

    error: Trajectory


@dataclass(frozen=True)
class Problem:
    """The layers, the settings, y : (N, C), and Z : (M, r), the inputs / sqrt(d) in a basis of their span.

    Adam depends on the basis, so for Adam, Z = inputs / sqrt(d).
    """

    dense: tuple[s.Dense, ...]
    phi: tuple[Pointwise, ...]
    Z: Array
    y: Array
    gamma0: float
    optimizer: SGD | Adam


class Group:
    """A group of n simulated neurons in each hidden layer.

    inputs : (n, r), between, outputs : (n, C), the layers' weights.  bias : (n, 1) per hidden layer, multiplied by b_l.
    shift : (1, C), the change of f due to the output's bias.
    """

    def __init__(self, problem: Problem, n: int, rng: np.random.Generator) -> None:
        self.problem, self.n = problem, n
        *hidden, last = problem.dense

        def draw(*shape: int) -> Array:
            return to_library(rng.standard_normal(shape), array_namespace(problem.Z))

        self.inputs, self.outputs = draw(n, problem.Z.shape[1]), draw(n, last.width)
        self.between = [DeferredGaussian(n, draw) for _ in hidden[1:]]
        self.bias = [d.b_std * (d.b_init == "normal") * draw(n, 1) for d in hidden]
        self.shift = 0 * draw(1, last.width)
        self.steps = Steps(problem.optimizer)

    def up(self) -> tuple[list[Array], list[Array], Array]:
        """Return h^l and phi^l : (n, M), l = 1 ... L, and f : (M, C)."""
        (first, *others), phi = self.problem.dense, list[Array]()
        h = [first.w_std * self.inputs @ self.problem.Z.T + self.bias[0]]
        for at, point in enumerate(self.problem.phi):
            phi.append(point.phi(array_namespace(h[at]), h[at]))
            if at < len(self.between):
                m = others[at].w_std / sqrt(self.n)
                h.append(m * self.between[at].times(phi[at]) + self.bias[at + 1])
        m = others[-1].w_std / (self.problem.gamma0 * self.n)
        return h, phi, m * phi[-1].T @ self.outputs + self.shift

    def down(self, h: list[Array]) -> list[Array]:
        """Return g^l : (n, M, C), l = 1 ... L."""
        xp, dense = array_namespace(h[0]), self.problem.dense
        z, g = dense[-1].w_std * self.outputs[:, None, :], list[Array]()
        for at in reversed(range(len(h))):
            g.insert(0, self.problem.phi[at].derivative(xp, h[at])[:, :, None] * z)
            if at > 0:
                xi = self.between[at - 1].transposed_times(g[0].reshape(self.n, -1))
                z = dense[at].w_std / sqrt(self.n) * xi.reshape(g[0].shape)
        return g

    def step(self, phi: list[Array], g: list[Array], e: Array) -> None:
        """Take one step of the optimiser, driven by e : (M, C)."""
        problem, steps, (first, *others) = self.problem, self.steps, self.problem.dense
        rate, steps.k = problem.optimizer.rate * problem.gamma0, steps.k + 1
        ge = [(one * e).sum(axis=2) for one in g]
        inputs = first.w_std * ge[0] @ problem.Z
        self.inputs = self.inputs + steps.entries("inputs", inputs, rate, inputs.shape[1])
        for at, W in enumerate(self.between):
            u, v = others[at].w_std / sqrt(self.n) * ge[at + 1], phi[at]
            if isinstance(problem.optimizer, SGD):
                u, v = steps.factors(f"W{at}", u, v)
                W.add(rate * u, v)
            else:
                moved = steps.entries(f"W{at}", u @ v.T, rate, self.n)
                W.moved = moved if W.moved is None else W.moved + moved
        for at, dense in enumerate(problem.dense[:-1]):
            bias = dense.b_std * ge[at].sum(axis=1)[:, None]
            self.bias[at] = self.bias[at] + dense.b_std * steps.entries(f"b{at}", bias, rate)
        self.outputs = self.outputs + steps.entries("outputs", others[-1].w_std * phi[-1] @ e, rate)
        b = others[-1].b_std
        self.shift = self.shift + b / problem.gamma0 * steps.entries("shift", b * e.sum(axis=0), rate)

    def descent(self, steps: int) -> Iterator[tuple[Array, Array, Array, Array]]:
        """Yield f, features, gradients and ntk, as in `Trajectory`, initially and after each step."""
        Z, y, xp = self.problem.Z, self.problem.y, array_namespace(self.problem.Z)
        N, start = len(y), self.up()[2]
        for k in range(steps + 1):
            h, phi, f = self.up()
            g, f = self.down(h), f - start
            if not bool(xp.all(xp.abs(f) < 1e50)):  # the next step would overflow
                lr = self.problem.optimizer.rate
                raise FloatingPointError(f"the descent has diverged at step {k}: take a smaller lr than {lr:g}")
            Phi = [Z @ Z.T, *(one.T @ one / self.n for one in phi)]
            flat = [xp.moveaxis(one, 1, 0).reshape(len(f), -1) for one in g]
            G = [*(one @ one.T / one.shape[1] for one in flat), xp.ones_like(Phi[0])]
            ntk = [(d.w_std**2 * P + d.b_std**2) * Q for d, P, Q in zip(self.problem.dense, Phi, G, strict=True)]
            yield f, xp.stack(Phi[1:]), xp.stack(G[:-1]), sum(ntk[1:], ntk[0])
            self.step(phi, g, xp.concat([(y - f[:N]) / N, 0 * f[N:]]))


def feature_learning_limit(
    spec: s.Layer, x: Array, y: Array, *, gamma0: float, lr: float | SGD | Adam, steps: int, samples: int,
    rng: np.random.Generator, x_test: Array | None = None,
) -> FeatureLearningLimit:  # fmt: skip
    """Run full-batch descent on L = 1/(2N) sum |f - y|^2 for an infinitely wide network that learns features.

    spec : mn.Sequential(mn.Dense(n), mn.Tanh(), ..., mn.Dense(C)), with any activations, with or without biases; hidden
    widths have no effect.  x : (N, d), y : (N, C), x_test : (M, d).  gamma0 > 0 : strength of feature learning; 1 is
    `mn.MeanField()`, and gamma0 -> 0 gives the NTK.  lr : learning rate (t = lr * steps), `mn.SGD(lr, momentum)` or
    `mn.Adam(lr)`.  At width n, the rate for the weights is lr gamma0^2 n (`analytic.limits.linear_problem`), and Adam
    trains `mn.Centred(net, theta0, 1 / gamma0)` with `mn.MeanField()`, the rate lr gamma0 and eps = 0.
    samples : neurons per hidden layer, in 16 groups whose spread gives standard errors of order samples^(-1/2).  The
    means' systematic error is of order 16 / samples, which is much smaller.

    The work is O(samples m^2) for m <= C (N + M)(steps + 1) independent features.  For example, 20 steps with 64,000
    samples, 4 examples and two hidden layers take about 3 s.  Here, Adam needs about samples^2 / 8 more bytes, and of
    order samples^2 / 16 more operations per step.  Raises UnsupportedLayer for other layers or activations unknown to
    `pointwise`, ValueError for invalid shapes, gamma0, lr or samples, and TypeError if rng is a seed or lr is another
    optimiser.  Raises MemoryError if too little memory is free, and FloatingPointError if the descent diverges.

    >>> import numpy as np, minintk as mn
    >>> spec = mn.Sequential(mn.Dense(512), mn.ReLU(), mn.Dense(512), mn.ReLU(), mn.Dense(1))
    >>> x, y, how = np.array([[1.0]]), np.array([[1.0]]), dict(lr=0.5, steps=6, samples=16000)
    >>> for gamma0 in (0.1, 1.0):
    ...     limit = feature_learning_limit(spec, x, y, gamma0=gamma0, rng=np.random.default_rng(0), **how)
    ...     print(limit.f[6].round(2), limit.error.f[6].round(3), "features", limit.features[6, 1].round(2))
    [[0.93]] [[0.004]] features [[0.26]]
    [[0.98]] [[0.002]] features [[1.21]]
    """
    dense, layers = hidden_layers(spec)
    phi, every = tuple(map(pointwise, layers)), check_data(x, y, dense[-1].width, x_test)
    xp, (d, C), M = array_namespace(x), (x.shape[1], dense[-1].width), sum(map(len, every))
    steps, n = whole("steps", steps, 0), whole("samples", samples, 8 * GROUPS) // GROUPS
    adam = not isinstance(optimizer := check_optimizer(lr), SGD)
    known = (len(phi) - 1) * n * (min(n, M * (steps + 1)) + min(n, C * M * (steps + 1)) + adam * n)
    need = 8 * (4 * known + n * (d + len(phi) * M * (2 + C)) + 2 * GROUPS * (steps + 1) * M**2 * (2 * len(phi) + 1))
    remedy = "take fewer samples, fewer examples, or fewer and longer steps"
    check_memory(xp, f"a group of {n} neurons over {steps + 1} times of {M} examples", need, remedy)
    if (gamma0 := number("gamma0", gamma0)) < 1e-8:
        raise ValueError(
            f"gamma0 expects a number >= 1e-8, below which f = f_net / gamma0 is rounding errors, got {gamma0:g}: "
            "take analytic.gradient_descent with the NTK, its limit"
        )
    inputs = np.concatenate([to_host(a) for a in every]).astype(np.float64) / sqrt(d)
    U, size, _ = np.linalg.svd(inputs, False)
    Z, targets = to_library(inputs if adam else U * size, xp), to_library(np.array(to_host(y), dtype=np.float64), xp)
    problem = Problem(dense, phi, Z, targets, gamma0, optimizer)
    return _over_groups(problem, n, steps, generator(rng), x.dtype)


def _over_groups(problem: Problem, n: int, steps: int, rng: np.random.Generator, dtype: Any) -> FeatureLearningLimit:
    """Run the groups one after another; return the means over them and their standard errors."""
    xp, groups = array_namespace(problem.Z), (Group(problem, n, rng).descent(steps) for _ in range(GROUPS))
    with np.errstate(over="ignore", invalid="ignore"):  # `descent` checks
        runs = [[xp.stack(a) for a in zip(*group, strict=True)] for group in groups]
    every = [xp.stack(a) for a in zip(*runs, strict=True)]
    f, features, gradients, ntk = (xp.astype(xp.mean(a, axis=0), dtype) for a in every)
    error = Trajectory(*(xp.astype(xp.std(a, axis=0, correction=1) / sqrt(GROUPS), dtype) for a in every))
    return FeatureLearningLimit(f, features, gradients, ntk, error)
