"""Compute reference results for the feature-learning limit, from equivalent finite networks and mean-field theory."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
from scipy.special import erf
from scipy.stats import t as student

import minintk as mn
from analytic.limits import linear_problem, nonlinear
from analytic.limits.nonlinear import DeferredGaussian
from analytic.limits.steps import check_optimizer
from minintk.layers.activation import pointwise

Array = np.ndarray[Any, Any]


def drawn(W: DeferredGaussian, rng: np.random.Generator) -> Array:
    """Draw a whole matrix that agrees with all products that the deferred W has returned, and is N(0, 1) otherwise."""
    outside_q, outside_p = (np.eye(len(a)) - a @ a.T for a in (np.asarray(W.Q), np.asarray(W.P)))
    rest = outside_p @ rng.standard_normal((len(W.P), len(W.Q))) @ outside_q
    return np.asarray(W.WQ @ W.Q.T + W.P @ W.WtP.T @ outside_q + rest)


def group_and_network(
    spec: mn.Sequential, x: Array, y: Array, *, n: int, steps: int, gamma0: float, lr: float | mn.SGD | mn.Adam
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Return (f, ntk) of n samples, and (f, ntk) of `mn.train` from the same weights, initially and after each step."""
    rng = np.random.default_rng(0)
    by: Any = check_optimizer(lr)
    U, size, Vt = np.linalg.svd(x / sqrt(x.shape[1]), full_matrices=False)
    if isinstance(by, mn.Adam):  # the steps of Adam depend on the basis
        U, size, Vt = x / sqrt(x.shape[1]), np.ones(x.shape[1]), np.eye(x.shape[1])
    dense, phi = linear_problem.hidden_layers(spec)
    group = nonlinear.Group(nonlinear.Problem(dense, tuple(map(pointwise, phi)), U * size, y, gamma0, by), n, rng)
    first, last, bias = group.inputs @ Vt, group.outputs, list(group.bias)
    moved = [np.zeros((n, n)) for _ in group.between]
    for at, W in enumerate(group.between):

        def add(u: Array, v: Array, at: int = at, right: Any = W.add) -> None:
            moved[at] = moved[at] + u @ v.T
            right(u, v)

        W.add = add  # type: ignore[method-assign]
    f, _, _, ntk = (np.stack(a) for a in zip(*group.descent(steps), strict=True))
    between = [drawn(W, rng) - m for W, m in zip(group.between, moved, strict=True)]
    adam = isinstance(by, mn.Adam)
    net = mn.Network(spec, x.shape[1:], mn.MeanField() if adam else mn.NTK())
    names = [name for name in net.layout.unpack(np.zeros(net.size)) if name.endswith(".W")]
    w = dict(zip(names, [first.T, *(W.T for W in between), last], strict=True))
    for name, layer, b in zip(names, dense, [*bias, None], strict=True):
        if layer.b_std > 0:
            w[name.replace("W", "b")] = np.zeros(layer.width) if b is None else b[:, 0] / layer.b_std
    theta0 = net.layout.pack(w)
    model = mn.Centred(net, theta0, 1 / gamma0 if adam else 1 / (gamma0 * sqrt(n)))
    wide: Any = replace(by, lr=by.rate * gamma0, eps=1e-150) if adam else replace(by, lr=by.rate * gamma0**2 * n)
    run = list(mn.train(model, theta0, x, y, loss=mn.mse, optimizer=wide, steps=steps))
    plain = mn.Network(spec, x.shape[1:])
    return (f, ntk), (np.array([model(s.theta, x) for s in run]), np.array([mn.ntk(plain, s.theta, x) for s in run]))


def within(law: str, found: Array, error: Array, truth: Any, groups: int = nonlinear.GROUPS) -> None:
    """Raise AssertionError unless every |found - truth| / error is below the quantile of Student's t distribution.

    The probability of a false alarm is at most 1e-3.
    """
    t = np.abs(found - truth) / error
    most = student.isf(1e-3 / 2 / t.size, groups - 1)
    if not t.max() <= most:
        raise AssertionError(f"{law}: {t.max():.1f} standard errors, {most:.1f} explained by chance")


def exponent(widths: tuple[int, ...], means: Array, errors: Array) -> tuple[float, float]:
    """Return b and the standard error of b for the fit |mean| = A n^b, by weighted least squares of the logs."""
    weight, n = np.abs(means) / errors, np.log(widths)
    A = np.stack([np.ones(len(n)), n], axis=1) * weight[:, None]
    return float(np.linalg.lstsq(A, weight * np.log(np.abs(means)))[0][1]), float(np.linalg.inv(A.T @ A)[1, 1] ** 0.5)


def by_tangents(
    x: Array, y: Array, *, gamma0: float, lr: float, steps: int, samples: int, seed: int, boundary: bool = True,
    echo: float = 1.0,
) -> tuple[Array, Array]:  # fmt: skip
    """Return f - f_0 : (steps + 1, N), Phi^2 : (steps + 1, N, N) for two hidden erf layers and one output, w_std = 1.

    The function solves the equations in the docstring of `analytic.limits.nonlinear` and shares no code with the
    library. Gaussian fields are drawn step by step with Cholesky factors. Each sample carries its tangents d phi / dr
    and d g / du, whose means are A and B. boundary : False drops B's term at s = k. echo : multiplier of A and B.
    """

    def d1(h: Array) -> Array:
        return np.asarray(2 / sqrt(np.pi) * np.exp(-(h**2)))

    rng, S, N, T = np.random.default_rng(seed), samples, len(x), steps + 1
    K0 = x @ x.T / x.shape[1]
    u1 = rng.standard_normal((S, N)) @ np.linalg.cholesky(K0).T
    r2, white_u, white_r = rng.standard_normal((S, 1)), *(rng.standard_normal((S, T * N)) for _ in range(2))
    p1, g1, p2, g2 = (np.zeros((S, T * N)) for _ in range(4))
    dp1, dg1, dp2, dg2 = (np.zeros((S, T * N, T * N)) for _ in range(4))  # layer 1: d/dr(s), layer 2: d/du(s)
    A, B, e, f = np.zeros((T * N, T * N)), np.zeros((T * N, T * N)), np.zeros(T * N), np.zeros((T, N))
    Phi2 = np.zeros((T, N, N))

    def field(white: Array, K: Array, now: slice) -> Array:
        L = np.linalg.cholesky(K + 1e-10 * np.eye(len(K)))
        return np.asarray(white[:, : len(K)] @ L[now].T)

    for k in range(T):
        past, now, upto = slice(0, k * N), slice(k * N, (k + 1) * N), slice(0, (k + 1) * N)
        C1 = lr * gamma0 * np.tile(K0, (1, T))[:, past] * e[past]
        h1, dh1 = u1 + g1[:, past] @ C1.T, C1 @ dg1[:, past]
        p1[:, now], dp1[:, now] = erf(h1), d1(h1)[:, :, None] * dh1
        A[now] = echo * dp1[:, now].mean(0) / gamma0
        Phi1 = p1[:, upto].T @ p1[:, upto] / S
        C2 = gamma0 * (A[now, past] + lr * Phi1[now, past] * e[past])
        h2, dh2 = field(white_u, Phi1, now) + g2[:, past] @ C2.T, C2 @ dg2[:, past]
        dh2[:, range(N), range(k * N, (k + 1) * N)] += 1
        p2[:, now], dp2[:, now] = erf(h2), d1(h2)[:, :, None] * dh2
        z2, dz2 = r2 + lr * gamma0 * (p2[:, past] @ e[past])[:, None], lr * gamma0 * e[past] @ dp2[:, past]
        g2[:, now] = d1(h2) * z2
        dg2[:, now] = d1(h2)[:, :, None] * (dz2[:, None] - (2 * h2 * z2)[:, :, None] * dh2)
        B[now] = echo * dg2[:, now].mean(0) / gamma0
        if not boundary:
            B[now, now] = 0
        G2 = g2[:, upto].T @ g2[:, upto] / S
        D = gamma0 * B[now, upto]
        D[:, past] += gamma0 * lr * G2[now, past] * e[past]
        z1, dz1 = field(white_r, G2, now) + p1[:, upto] @ D.T, D @ dp1[:, upto]
        dz1[:, range(N), range(k * N, (k + 1) * N)] += 1
        g1[:, now] = d1(h1) * z1
        dg1[:, now] = d1(h1)[:, :, None] * (dz1 - (2 * h1 * z1)[:, :, None] * dh1)
        f[k] = (p2[:, now] * z2).mean(0) / gamma0
        Phi2[k] = p2[:, now].T @ p2[:, now] / S
        e[now] = (y[:, 0] - (f[k] - f[0])) / N
    return f - f[0], Phi2
