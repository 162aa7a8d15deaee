"""Represent a table as a (3, 3) array, and train all networks of one width together as a stack."""

import numpy as np
import variant

PLACES = ["input", "hidden", "output"]
TWICE = {"sgd": 2, "sign": 1}[variant.optimizer]


def table():
    rows = np.array([[0, 0, -1 if TWICE == 2 else 0], [0, 0.5, 0 if TWICE == 2 else 1], [0, 1, 1]])
    column = {"plain": rows[:, 0], "unit": rows[:, 1], "one_rate": rows[:, 2] / TWICE}[variant.convention]
    rows = rows + column[:, None] * np.array([1, -1, -TWICE])
    return {place: tuple(row.tolist()) for place, row in zip(PLACES, rows)}


def shifted(table, place, s):
    new = dict(table)
    new[place] = tuple((np.array(table[place]) + s * np.array([1.0, -1.0, -TWICE])).tolist())
    return new


def powers(table, column, n):
    return np.array([table[place][column] for place in PLACES], dtype=float) * -np.log(n)


def initial(seed, n, s, d, C, table):
    rng = np.random.default_rng([seed, n, s])
    stds = np.exp(powers(table, 1, n)) * [d**-0.5, 1.0, 0.1]
    return [std * rng.standard_normal(shape) for std, shape in zip(stds, ((d, n), (n, n), (n, C)))]


def stack(seed, n, seeds, d, C, table):
    return [np.stack(some) for some in zip(*(initial(seed, n, s, d, C, table) for s in range(seeds)))]


def forward(x, weights, table):
    m = np.exp(powers(table, 0, weights[1].shape[-1]))
    first = m[0] * (x @ weights[0])
    second = m[1] * (np.tanh(first) @ weights[1])
    return [first, second, m[2] * (np.tanh(second) @ weights[2])]


def gradients(x, y, weights, table):
    m = np.exp(powers(table, 0, weights[1].shape[-1]))
    first, second, f = forward(x, weights, table)
    p, q = np.tanh(first), np.tanh(second)
    u3 = m[2] * (f - y) / x.shape[0]
    u2 = m[1] * (u3 @ weights[2].swapaxes(-1, -2)) * (1 - q * q)
    u1 = m[0] * (u2 @ weights[1].swapaxes(-1, -2)) * (1 - p * p)
    return [a.swapaxes(-1, -2) @ u for a, u in ((x, u1), (p, u2), (q, u3))]


def step(x, y, weights, table, lr):
    rates = lr * np.exp(powers(table, 2, weights[1].shape[-1]))
    way = np.sign if TWICE == 1 else np.asarray
    return [W - rate * way(dW) for W, rate, dW in zip(weights, rates, gradients(x, y, weights, table))]


def size(h):
    return np.sqrt(np.square(h).mean((-2, -1))) if variant.size == "rms" else np.abs(h).mean((-2, -1))


def sizes(x, y, weights, table, lr, steps):
    start = forward(x, weights, table)
    for _ in range(steps):
        weights = step(x, y, weights, table, lr)
    end = forward(x, weights, table)
    return np.stack([[size(h) for h in end], [size(p - q) for p, q in zip(end, start)]])


def line(n, values):
    """Return the least-squares slopes of values (K, ...) against n (K,)."""
    n = np.asarray(n) - np.mean(n)
    return np.tensordot(n / (n @ n), values, 1)


def coordinate_check(x, y, widths, seeds, table, lr, steps, seed):
    found = [sizes(x, y, stack(seed, n, seeds, x.shape[1], y.shape[1], table), table, lr, steps) for n in widths]
    return line(np.log(widths), np.log(found).mean(axis=-1))


def best_rate(rates, losses):
    i = np.argmin(losses)
    if i == 0 or i == len(rates) - 1:
        return rates[i]
    t = np.log(np.asarray(rates, dtype=float))[i - 1 : i + 2]
    _, tilt, bend = np.linalg.solve(np.vander(t, 3, increasing=True), np.asarray(losses)[i - 1 : i + 2])
    return np.exp(-tilt / bend / 2)


def transfer(x, y, widths, seeds, rates, table, steps, seed):
    best = []
    for n in widths:
        means = []
        for lr in rates:
            weights = stack(seed, n, seeds, x.shape[1], y.shape[1], table)
            for _ in range(steps):
                weights = step(x, y, weights, table, lr)
            loss = np.square(forward(x, weights, table)[2] - y).sum(axis=(-2, -1)) / 2 / len(y)
            means.append(np.log(loss).mean())
        best.append(best_rate(rates, np.array(means)))
    return np.array(best), line(np.log2(widths), np.log2(best))
