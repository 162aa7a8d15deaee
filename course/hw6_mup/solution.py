"""Assignment 6, one learning rate for every width. Write the functions below; the handout says what each one returns.

Besides the standard library, you may import only NumPy. Never modify the inputs; every array is float64.
"""

import numpy as np
from variant import convention as CONVENTION  # "plain", "unit" or "one_rate"
from variant import gain as GAIN  # multiplies tanh
from variant import optimizer as OPTIMIZER  # "sgd" or "sign"
from variant import size as SIZE  # "rms" or "abs"

# ------------------------------------------------------------------------------------------------- given: numbers

PLACES = ("input", "hidden", "output")
SIGMA = {"input": 1.0, "hidden": 1.0, "output": 0.1}


def draw(seed, n, s, d, C):
    """Draw network number s with width n, d inputs, C outputs: three arrays (d, n), (n, n), (n, C) from N(0, 1)."""
    rng = np.random.default_rng([seed, n, s])
    return [rng.standard_normal(shape) for shape in ((d, n), (n, n), (n, C))]


# ------------------------------------------------------------------------------------------------ part 1: the table


def table():
    """Return {"input": (a, b, c), "hidden": (a, b, c), "output": (a, b, c)}: muP in your handout's convention."""
    # BEGIN SOLUTION
    a, b = (0, 0, 0), (0, 0.5, 1)
    c = (-1, 0, 1) if OPTIMIZER == "sgd" else (0, 1, 1)
    found = dict(zip(PLACES, zip(a, b, c)))
    twice = 2 if OPTIMIZER == "sgd" else 1
    shifts = {"plain": a, "unit": b, "one_rate": [rate / twice for rate in c]}[CONVENTION]
    for place, s in zip(PLACES, shifts):
        found = shifted(found, place, s)
    return found
    # END SOLUTION


def shifted(table, place, s):
    """Return the table with a + s at `place` that gives the same function at every step of training."""
    # BEGIN SOLUTION
    a, b, c = table[place]
    return {**table, place: (a + s, b - s, c - (2 * s if OPTIMIZER == "sgd" else s))}
    # END SOLUTION


# -------------------------------------------------------------------------------------------- part 2: the network


def initial(seed, n, s, d, C, table):
    """Return the initial weights [W1 (d, n), W2 (n, n), W3 (n, C)] of network number s, made from `draw`."""
    # BEGIN SOLUTION
    weights = []
    for place, normal in zip(PLACES, draw(seed, n, s, d, C)):
        std = SIGMA[place] * float(n) ** -table[place][1]
        weights.append(normal * (std / np.sqrt(d) if place == "input" else std))
    return weights
    # END SOLUTION


def forward(x, weights, table):
    """Map x (N, d) to [h1 (N, n), h2 (N, n), f (N, C)], the outputs of the layers before the activation."""
    # BEGIN SOLUTION
    n, h = float(len(weights[1])), []
    for place, W in zip(PLACES, weights):
        h.append(float(n) ** -table[place][0] * (GAIN * np.tanh(h[-1]) if h else x) @ W)
    return h
    # END SOLUTION


def gradients(x, y, weights, table):
    """Return the gradients [dW1, dW2, dW3] of L = 1/(2N) sum_i |f(x_i) - y_i|^2."""
    # BEGIN SOLUTION
    n, h = float(len(weights[1])), forward(x, weights, table)
    inputs = [x, GAIN * np.tanh(h[0]), GAIN * np.tanh(h[1])]
    u, found = (h[2] - y) / len(x), []
    for at in (2, 1, 0):
        multiplier = n ** -table[PLACES[at]][0]
        found.insert(0, multiplier * inputs[at].T @ u)
        if at:
            u = multiplier * u @ weights[at].T * GAIN * (1 - np.tanh(h[at - 1]) ** 2)
    return found
    # END SOLUTION


def step(x, y, weights, table, lr):
    """Return new weights after one step of your handout's optimiser, with the table's rates."""
    # BEGIN SOLUTION
    n, found = float(len(weights[1])), []
    for place, W, dW in zip(PLACES, weights, gradients(x, y, weights, table)):
        rate = lr * n ** -table[place][2]
        found.append(W - rate * (dW if OPTIMIZER == "sgd" else np.sign(dW)))
    return found
    # END SOLUTION


# ------------------------------------------------------------------------------------- part 3: the coordinate check


def sizes(x, y, weights, table, lr, steps):
    """Return the sizes (2, 3) of h1, h2, f after the last step (row 0) and of their changes since the start (row 1)."""
    # BEGIN SOLUTION
    start = forward(x, weights, table)
    for _ in range(steps):
        weights = step(x, y, weights, table, lr)
    end = forward(x, weights, table)

    def size(h):
        return np.sqrt(np.mean(h**2)) if SIZE == "rms" else np.mean(np.abs(h))

    return np.array([[size(h) for h in end], [size(h - h0) for h, h0 in zip(end, start)]])
    # END SOLUTION


def coordinate_check(x, y, widths, seeds, table, lr, steps, seed):
    """Fit powers of the width to `sizes` of networks 0 ... seeds - 1 at all widths; return the exponents (2, 3)."""
    # BEGIN SOLUTION
    d, C = x.shape[1], y.shape[1]
    found = [[sizes(x, y, initial(seed, n, s, d, C, table), table, lr, steps) for s in range(seeds)] for n in widths]
    logs = np.log(np.array(found)).mean(axis=1).reshape(len(widths), 6)
    return np.polyfit(np.log(widths), logs, 1)[0].reshape(2, 3)
    # END SOLUTION


# ------------------------------------------------------------------------------------------------ part 4: transfer


def best_rate(rates, losses):
    """Return the rate at the minimum of a parabola in log(rate), fitted to the lowest loss and its neighbours."""
    # BEGIN SOLUTION
    i = int(np.argmin(losses))
    if i in (0, len(rates) - 1):
        return float(rates[i])
    bend, tilt, _ = np.polyfit(np.log(rates[i - 1 : i + 2]), losses[i - 1 : i + 2], 2)
    return float(np.exp(-tilt / (2 * bend)))
    # END SOLUTION


def transfer(x, y, widths, seeds, rates, table, steps, seed):
    """Return the best rate of each width (K,), and the slope of log2 of the best rate against log2 of the width."""
    # BEGIN SOLUTION
    best = []
    for n in widths:
        logs = np.zeros((len(rates), seeds))
        for s in range(seeds):
            start = initial(seed, n, s, x.shape[1], y.shape[1], table)
            for r, lr in enumerate(rates):
                weights = start
                for _ in range(steps):
                    weights = step(x, y, weights, table, lr)
                logs[r, s] = np.log(np.sum((forward(x, weights, table)[2] - y) ** 2) / (2 * len(x)))
        best.append(best_rate(rates, logs.mean(axis=1)))
    return np.array(best), float(np.polyfit(np.log2(widths), np.log2(best), 1)[0])
    # END SOLUTION


# ------------------------------------------------------------------------------------------------ the experiment


def feature_sizes(x, y, widths, seeds, tables, lr, steps, seed):
    """Return the size of h2 at the start and that of its change, (T, 2, K, seeds), for T tables and K widths."""
    # BEGIN SOLUTION
    found = []
    for table in tables:
        for n in widths:
            for s in range(seeds):
                weights = initial(seed, n, s, x.shape[1], y.shape[1], table)
                at_start = sizes(x, y, weights, table, lr, 0)[0, 1]
                found.append((at_start, sizes(x, y, weights, table, lr, steps)[1, 1]))
    return np.reshape(found, (len(tables), len(widths), seeds, 2)).transpose(0, 3, 1, 2)
    # END SOLUTION
