"""Process one example at a time, and write every formula out."""

import math

import numpy as np
from variant import convention, optimizer, size

RIGHT = {
    ("plain", "sgd"): ((0, 0, -1), (0, 0.5, 0), (0, 1, 1)),
    ("plain", "sign"): ((0, 0, 0), (0, 0.5, 1), (0, 1, 1)),
    ("unit", "sgd"): ((0, 0, -1), (0.5, 0, -1), (1, 0, -1)),
    ("unit", "sign"): ((0, 0, 0), (0.5, 0, 0.5), (1, 0, 0)),
    ("one_rate", "sgd"): ((-0.5, 0.5, 0), (0, 0.5, 0), (0.5, 0.5, 0)),
    ("one_rate", "sign"): ((0, 0, 0), (1, -0.5, 0), (1, 0, 0)),
}


def table():
    return dict(zip(("input", "hidden", "output"), RIGHT[convention, optimizer]))


def shifted(table, place, s):
    new = {}
    for other in table:
        a, b, c = table[other]
        if other == place:
            a, b = a + s, b - s
            c = c - s if optimizer == "sign" else c - s - s
        new[other] = (a, b, c)
    return new


def initial(seed, n, s, d, C, table):
    rng = np.random.default_rng([seed, n, s])
    W1, W2, W3 = rng.standard_normal((d, n)), rng.standard_normal((n, n)), rng.standard_normal((n, C))
    W1 = W1 / math.sqrt(d) / n ** table["input"][1]
    return [W1, W2 / n ** table["hidden"][1], 0.1 * W3 / n ** table["output"][1]]


def multipliers(weights, table):
    n = len(weights[1])
    return [1 / n ** table[place][0] for place in ("input", "hidden", "output")]


def one(row, weights, m):
    """Return h1, h2 and f for a single example."""
    first = m[0] * weights[0].T @ row
    second = m[1] * weights[1].T @ np.tanh(first)
    return first, second, m[2] * weights[2].T @ np.tanh(second)


def forward(x, weights, table):
    m = multipliers(weights, table)
    each = [one(row, weights, m) for row in x]
    return [np.array([h[layer] for h in each]) for layer in range(3)]


def gradients(x, y, weights, table):
    m, N = multipliers(weights, table), len(x)
    total = [np.zeros_like(W) for W in weights]
    for row, target in zip(x, y):
        first, second, f = one(row, weights, m)
        df = (f - target) / N
        total[2] += m[2] * np.outer(np.tanh(second), df)
        dsecond = m[2] * (weights[2] @ df) * (1 - np.tanh(second) ** 2)
        total[1] += m[1] * np.outer(np.tanh(first), dsecond)
        dfirst = m[1] * (weights[1] @ dsecond) * (1 - np.tanh(first) ** 2)
        total[0] += m[0] * np.outer(row, dfirst)
    return total


def step(x, y, weights, table, lr):
    n, new = len(weights[1]), []
    for W, g, place in zip(weights, gradients(x, y, weights, table), ("input", "hidden", "output")):
        if optimizer == "sign":
            g = np.where(g > 0, 1.0, np.where(g < 0, -1.0, 0.0))
        new.append(W - lr / n ** table[place][2] * g)
    return new


def measured(h):
    entries = h.ravel().tolist()
    if size == "rms":
        return math.sqrt(math.fsum(e * e for e in entries) / len(entries))
    return math.fsum(abs(e) for e in entries) / len(entries)


def sizes(x, y, weights, table, lr, steps):
    start, now = forward(x, weights, table), weights
    for _ in range(steps):
        now = step(x, y, now, table, lr)
    found = np.zeros((2, 3))
    for i, (h0, h) in enumerate(zip(start, forward(x, now, table))):
        found[0, i], found[1, i] = measured(h), measured(h - h0)
    return found


def slope(points):
    mean_p, mean_q = (math.fsum(some) / len(points) for some in zip(*points))
    over = math.fsum((p - mean_p) * (q - mean_q) for p, q in points)
    return over / math.fsum((p - mean_p) ** 2 for p, _ in points)


def coordinate_check(x, y, widths, seeds, table, lr, steps, seed):
    found = {}
    for n in widths:
        for s in range(seeds):
            weights = initial(seed, n, s, x.shape[1], y.shape[1], table)
            found[n, s] = sizes(x, y, weights, table, lr, steps)
    b = np.zeros((2, 3))
    for at in np.ndindex(2, 3):
        b[at] = slope([(math.log(n), math.log(size[at])) for (n, _), size in found.items()])
    return b


def best_rate(rates, losses):
    low = 0
    for i in range(len(rates)):
        if losses[i] < losses[low]:
            low = i
    if low == 0 or low == len(rates) - 1:
        return rates[low]
    (p, u), (q, v), (r, w) = [(math.log(rates[i]), losses[i]) for i in (low - 1, low, low + 1)]
    over = u * (q * q - r * r) + v * (r * r - p * p) + w * (p * p - q * q)
    return math.exp(over / (u * (q - r) + v * (r - p) + w * (p - q)) / 2)


def transfer(x, y, widths, seeds, rates, table, steps, seed):
    best = []
    for n in widths:
        losses = []
        for lr in rates:
            total = 0.0
            for s in range(seeds):
                weights = initial(seed, n, s, x.shape[1], y.shape[1], table)
                for _ in range(steps):
                    weights = step(x, y, weights, table, lr)
                f = forward(x, weights, table)[-1]
                total += math.log(sum(np.sum((p - q) ** 2) for p, q in zip(f, y)) / (2 * len(x)))
            losses.append(total / seeds)
        best.append(best_rate(rates, losses))
    return np.array(best), slope([(math.log2(n), math.log2(lr)) for n, lr in zip(widths, best)])
