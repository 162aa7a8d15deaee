"""Write the sums as einsums; fit the line through the logarithms with the pseudo-inverse."""

import numpy as np
from scipy.special import erf, stdtrit
from variant import activation, loss, norm

ROOT = 2 / np.sqrt(np.pi)


def passage(x, W):
    """Return phi and phi' of the hidden units, (N, n) each."""
    z = np.einsum("id,dn->in", x, W) / np.sqrt(W.shape[0])
    if activation == "tanh":
        return np.tanh(z), 1 - np.tanh(z) ** 2
    return (np.sin(z), np.cos(z)) if activation == "sin" else (erf(z), ROOT * np.exp(-np.square(z)))


def outputs(x, W, a):
    return np.einsum("in,n->i", passage(x, W)[0], a) / np.sqrt(a.size)


def vjp(x, W, a, u):
    h, s = passage(x, W)
    dW = np.einsum("i,id,in,n->dn", u, x, s, a, optimize=True) / np.sqrt(W.size)
    return dW, np.einsum("i,in->n", u, h) / np.sqrt(a.size)


def jvp(x, W, a, dW, da):
    h, s = passage(x, W)
    by_W = np.einsum("id,dn,in,n->i", x, dW, s, a, optimize=True) / np.sqrt(W.size)
    return by_W + np.einsum("in,n->i", h, da) / np.sqrt(a.size)


def f_lin(x, W0, a0, W, a):
    return outputs(x, W0, a0) + jvp(x, W0, a0, W, a) - jvp(x, W0, a0, W0, a0)


def tangent_kernel(x, W, a):
    h, s = passage(x, W)
    last = np.einsum("in,jn->ij", h, h)
    first = np.einsum("id,jd->ij", x, x) * np.einsum("in,jn,n,n->ij", s, s, a, a, optimize=True)
    return (last + first / W.shape[0]) / a.size


def descend(f, gradient, y, point, rate, steps):
    """Return f(W, a) before the first and after each step of gradient descent on the sum loss, at the rate `rate`."""
    W, a = point
    found = [f(W, a)]
    for _ in range(steps):
        dW, da = gradient(W, a, found[-1] - y)
        W, a = W - rate * dW, a - rate * da
        found.append(f(W, a))
    return np.array(found)


def of_sum(lr, y):
    return lr / {"mean": y.size, "sum": 1}[loss]


def train(x, y, W, a, lr, steps):
    return descend(lambda *p: outputs(x, *p), lambda W, a, u: vjp(x, W, a, u), y, (W, a), of_sum(lr, y), steps)


def train_lin(x, y, W0, a0, lr, steps):
    def model(W, a):
        return outputs(x, W0, a0) + jvp(x, W0, a0, W - W0, a - a0)

    return descend(model, lambda W, a, u: vjp(x, W0, a0, u), y, (W0, a0), of_sum(lr, y), steps)


def train_centred(x, y, W, a, alpha, lr, steps):
    f0 = outputs(x, W, a)

    def gradient(W, a, u):
        return vjp(x, W, a, alpha * u)

    rate = of_sum(lr, y) * alpha**-2.0
    return descend(lambda *p: alpha * (outputs(x, *p) - f0), gradient, y, (W, a), rate, steps)


def deviation(x, y, W, a, lr, steps):
    apart = train(x, y, W, a, lr, steps) - train_lin(x, y, W, a, lr, steps)
    if norm == "max":
        return np.abs(apart).max()
    return np.sqrt(np.einsum("ti,ti->t", apart, apart) / y.size).max()


def measure(x, y, widths, seeds, lr, steps, seed):
    rows = []
    for n in widths:
        rngs = (np.random.default_rng([seed, n, s]) for s in range(seeds))
        drawn = ((rng.standard_normal((x.shape[1], n)), rng.standard_normal(n)) for rng in rngs)
        rows.append([deviation(x, y, W, a, lr, steps) for W, a in drawn])
    return np.array(rows)


def fit(widths, values, confidence):
    log_n = np.repeat(np.log(widths), values.shape[1])
    design, v = np.stack([np.ones_like(log_n), log_n], axis=1), np.log(values).reshape(-1)
    solve = np.linalg.pinv(design)
    line = np.einsum("ck,k->c", solve, v)
    rest = v - np.einsum("kc,c->k", design, line)
    variance = np.einsum("k,k->", rest, rest) / (v.size - 2) * np.einsum("k,k->", solve[1], solve[1])
    reach = stdtrit(v.size - 2, (1 + confidence) / 2) * np.sqrt(variance)
    return line[1], line[1] - reach, line[1] + reach


def verdict(low, high, theory, against):
    border = theory + np.array([-0.5, 0.5]) * abs(against - theory)
    if border[0] < low and high < border[1]:
        return "pass"
    return "fail" if high < border[0] or low > border[1] else "undecided"


def study(x, y, widths, lr, steps, seed, theory, against, budget, level):
    most = max(4, 2 ** int(np.log2(budget)))
    everything = measure(x, y, widths, most, lr, steps, seed)
    seeds, look = 4, 1
    while True:
        b, low, high = fit(widths, everything[:, :seeds], 1 - level * 0.5**look)
        said = verdict(low, high, theory, against)
        if said != "undecided" or seeds == most:
            return said, seeds, b, low, high
        seeds, look = seeds * 2, look + 1
