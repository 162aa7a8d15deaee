"""Write most sums as einsums, and build the table by shifting the table with a = 0."""

import numpy as np
from variant import convention, optimizer, size

PLACES = ("input", "hidden", "output")
K = 1 + (optimizer == "sgd")


def shifted(table, place, s):
    a, b, c = table[place]
    return table | {place: (a + s, b - s, c - K * s)}


def table():
    c = {"sgd": (-1.0, 0.0, 1.0), "sign": (0.0, 1.0, 1.0)}[optimizer]
    found = {place: (0.0, b, rate) for place, b, rate in zip(PLACES, (0.0, 0.5, 1.0), c)}
    for place, (_, b, rate) in list(found.items()):
        found = shifted(found, place, {"plain": 0.0, "unit": b, "one_rate": rate / K}[convention])
    return found


def power(table, which, n):
    return [np.power(float(n), -table[place][which]) for place in PLACES]


def initial(seed, n, s, d, C, table):
    rng = np.random.default_rng([seed, n, s])
    shapes, sigmas = ((d, n), (n, n), (n, C)), (1 / np.sqrt(d), 1, 1e-1)
    return [p * q * rng.standard_normal(shape) for p, q, shape in zip(sigmas, power(table, 1, n), shapes)]


def forward(x, weights, table):
    a, found = x, []
    for m, W in zip(power(table, 0, weights[1].shape[0]), weights):
        found.append(m * np.einsum("ni,io->no", a, W))
        a = np.tanh(found[-1])
    return found


def gradients(x, y, weights, table):
    h = forward(x, weights, table)
    a = [x, *np.tanh(h[0])[None], *np.tanh(h[1])[None]]
    u = np.einsum("no,n->no", h[-1] - y, np.full(len(x), 1 / len(x)))
    found = []
    for m, W, inputs in reversed(list(zip(power(table, 0, weights[1].shape[0]), weights, a))):
        found.append(m * np.einsum("ni,no->io", inputs, u))
        u = m * np.einsum("no,io,ni->ni", u, W, 1 - inputs**2)
    return found[::-1]


def step(x, y, weights, table, lr):
    moves = gradients(x, y, weights, table)
    moves = [np.sign(g) for g in moves] if optimizer == "sign" else moves
    return [W - lr * p * g for W, p, g in zip(weights, power(table, 2, weights[1].shape[0]), moves)]


def trained(x, y, weights, table, lr, steps):
    return weights if steps == 0 else trained(x, y, step(x, y, weights, table, lr), table, lr, steps - 1)


def sizes(x, y, weights, table, lr, steps):
    end = forward(x, trained(x, y, weights, table, lr, steps), table)
    pairs = [(h, h - h0) for h, h0 in zip(end, forward(x, weights, table))]
    if size == "rms":
        return np.array([[np.sqrt(np.einsum("no,no->", h, h) / h.size) for h in some] for some in zip(*pairs)])
    return np.array([[np.einsum("no->", np.abs(h)) / h.size for h in some] for some in zip(*pairs)])


def coordinate_check(x, y, widths, seeds, table, lr, steps, seed):
    starts = [[initial(seed, n, s, x.shape[1], y.shape[1], table) for s in range(seeds)] for n in widths]
    logs = np.log([[sizes(x, y, weights, table, lr, steps) for weights in row] for row in starts])
    design = np.stack([np.ones(len(widths) * seeds), np.repeat(np.log(widths), seeds)], axis=1)
    return np.einsum("k,kij->ij", np.linalg.pinv(design)[1], logs.reshape(-1, 2, 3))


def best_rate(rates, losses):
    i = int(np.argmin(losses))
    if not 0 < i < len(rates) - 1:
        return float(rates[i])
    near = slice(i - 1, i + 2)
    parabola = np.polynomial.Polynomial.fit(np.log(rates[near]), losses[near], 2)
    return float(np.exp(parabola.deriv().roots()[0].real))


def transfer(x, y, widths, seeds, rates, table, steps, seed):
    best = np.empty(len(widths))
    for i, n in enumerate(widths):
        starts = [initial(seed, n, s, x.shape[1], y.shape[1], table) for s in range(seeds)]
        off = [[forward(x, trained(x, y, W, table, lr, steps), table)[2] - y for W in starts] for lr in rates]
        losses = np.einsum("rsno,rsno->rs", off, off) / (2 * len(x))
        best[i] = best_rate(rates, np.einsum("rs->r", np.log(losses)) / seeds)
    return best, np.polynomial.Polynomial.fit(np.log2(widths), np.log2(best), 1).convert().coef[1]
