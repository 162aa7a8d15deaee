"""Process one example at a time, using the formulas of the handout."""

import math

import numpy as np
from scipy.special import erf, stdtrit
from variant import activation, loss, norm


def phi(z):
    if activation == "erf":
        return erf(z)
    return np.tanh(z) if activation == "tanh" else np.sin(z)


def slope(z):
    if activation == "erf":
        return 2 / math.sqrt(math.pi) * np.exp(-(z**2))
    return 1 - np.tanh(z) ** 2 if activation == "tanh" else np.cos(z)


def outputs(x, W, a):
    return np.array([np.sum(a * phi(row @ W / math.sqrt(len(row)))) / math.sqrt(len(a)) for row in x])


def gradient(row, W, a):
    """Return df/dW and df/da for one example."""
    d, n = W.shape
    z = row @ W / math.sqrt(d)
    return np.outer(row, slope(z) * a) / math.sqrt(d * n), phi(z) / math.sqrt(n)


def jvp(x, W, a, dW, da):
    f = []
    for row in x:
        by_W, by_a = gradient(row, W, a)
        f.append(np.sum(by_W * dW) + np.sum(by_a * da))
    return np.array(f)


def f_lin(x, W0, a0, W, a):
    return outputs(x, W0, a0) + jvp(x, W0, a0, W - W0, a - a0)


def tangent_kernel(x, W, a):
    gradients = [gradient(row, W, a) for row in x]
    K = np.empty((len(x), len(x)))
    for i, (dW, da) in enumerate(gradients):
        for j, (eW, ea) in enumerate(gradients):
            K[i, j] = np.sum(dW * eW) + np.sum(da * ea)
    return K


def moved(x, W, a, W_at, a_at, u, rate):
    """Return (W, a) minus `rate` times the gradient of sum_i u_i f(x_i) at (W_at, a_at)."""
    for row, weight in zip(x, u):
        dW, da = gradient(row, W_at, a_at)
        W, a = W - rate * weight * dW, a - rate * weight * da
    return W, a


def per_example(y):
    return len(y) if loss == "mean" else 1


def train(x, y, W, a, lr, steps):
    f = np.empty((steps + 1, len(x)))
    f[0] = outputs(x, W, a)
    for t in range(steps):
        W, a = moved(x, W, a, W, a, f[t] - y, lr / per_example(y))
        f[t + 1] = outputs(x, W, a)
    return f


def train_lin(x, y, W0, a0, lr, steps):
    f = np.empty((steps + 1, len(x)))
    f[0], W, a = outputs(x, W0, a0), W0, a0
    for t in range(steps):
        W, a = moved(x, W, a, W0, a0, f[t] - y, lr / per_example(y))
        f[t + 1] = f_lin(x, W0, a0, W, a)
    return f


def train_centred(x, y, W, a, alpha, lr, steps):
    f0 = outputs(x, W, a)
    F = np.zeros((steps + 1, len(x)))
    for t in range(steps):
        W, a = moved(x, W, a, W, a, F[t] - y, lr / per_example(y) / alpha)
        F[t + 1] = alpha * (outputs(x, W, a) - f0)
    return F


def deviation(x, y, W, a, lr, steps):
    largest = 0.0
    for f, g in zip(train(x, y, W, a, lr, steps), train_lin(x, y, W, a, lr, steps)):
        apart = [abs(p - q) for p, q in zip(f, g)]
        size = max(apart) if norm == "max" else math.sqrt(sum(p * p for p in apart) / len(apart))
        largest = max(largest, size)
    return largest


def measure(x, y, widths, seeds, lr, steps, seed):
    found = np.zeros((len(widths), seeds))
    for i, n in enumerate(widths):
        for s in range(seeds):
            rng = np.random.default_rng([seed, n, s])
            W = rng.standard_normal((x.shape[1], n))
            found[i, s] = deviation(x, y, W, rng.standard_normal(n), lr, steps)
    return found


def fit(widths, values, confidence):
    points = [(math.log(n), math.log(v)) for n, row in zip(widths, values) for v in row]
    many = len(points)
    mean_n, mean_v = sum(p for p, _ in points) / many, sum(q for _, q in points) / many
    spread = sum((p - mean_n) ** 2 for p, _ in points)
    b = sum((p - mean_n) * (q - mean_v) for p, q in points) / spread
    rest = sum((q - mean_v - b * (p - mean_n)) ** 2 for p, q in points)
    reach = float(stdtrit(many - 2, 0.5 + confidence / 2)) * math.sqrt(rest / (many - 2) / spread)
    return b, b - reach, b + reach


def verdict(low, high, theory, against):
    border = abs(theory - against) / 2
    if high - theory < border and theory - low < border:
        return "pass"
    if low - theory > border or theory - high > border:
        return "fail"
    return "undecided"


def study(x, y, widths, lr, steps, seed, theory, against, budget, level, seeds=4):
    level = level / 2
    b, low, high = fit(widths, measure(x, y, widths, seeds, lr, steps, seed), 1 - level)
    said = verdict(low, high, theory, against)
    if said == "undecided" and 2 * seeds <= budget:
        return study(x, y, widths, lr, steps, seed, theory, against, budget, level, 2 * seeds)
    return said, seeds, b, low, high
