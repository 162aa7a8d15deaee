"""Assignment 5, lazy or learning. Write the functions below; the handout says what each one returns.

Besides the standard library, you may import only NumPy and SciPy. Never modify the inputs; every array is float64.
"""

import numpy as np
from scipy.special import erf, stdtrit
from variant import activation as ACTIVATION  # "tanh", "sin" or "erf"
from variant import gain as GAIN  # multiplies the activation
from variant import loss as LOSS  # "mean" or "sum" over the examples
from variant import norm as NORM  # "rms" or "max" over the examples

# ---------------------------------------------------------------------------------------------- given: a network


def phi(z):
    """Return the activation."""
    return GAIN * {"tanh": np.tanh, "sin": np.sin, "erf": erf}[ACTIVATION](z)


def slope(z):
    """Return the derivative of the activation."""
    if ACTIVATION == "tanh":
        return GAIN * (1 - np.tanh(z) ** 2)
    return GAIN * (np.cos(z) if ACTIVATION == "sin" else 2 / np.sqrt(np.pi) * np.exp(-(z**2)))


def draw(seed, n, s, d):
    """Draw network number s of width n for inputs of d entries: W (d, n), a (n,), with entries from N(0, 1)."""
    rng = np.random.default_rng([seed, n, s])
    return rng.standard_normal((d, n)), rng.standard_normal(n)


def outputs(x, W, a):
    """Map x (N, d) to f (N,): f(x) = phi(x W / sqrt(d)) a / sqrt(n)."""
    d, n = W.shape
    return phi(x @ W / np.sqrt(d)) @ a / np.sqrt(n)


def vjp(x, W, a, u):
    """Map u (N,) to u J, the gradient of sum_i u_i f(x_i), as dW (d, n) and da (n,)."""
    d, n = W.shape
    z = x @ W / np.sqrt(d)
    return x.T @ (u[:, None] * slope(z) * a) / np.sqrt(d * n), u @ phi(z) / np.sqrt(n)


# ---------------------------------------------------------------------------------------- part 1: linearisation


def jvp(x, W, a, dW, da):
    """Return J (dW, da), the first-order change of f (N,) when W changes by dW (d, n) and a by da (n,)."""
    # BEGIN SOLUTION
    d, n = W.shape
    z, dz = x @ W / np.sqrt(d), x @ dW / np.sqrt(d)
    return ((slope(z) * dz) @ a + phi(z) @ da) / np.sqrt(n)
    # END SOLUTION


def f_lin(x, W0, a0, W, a):
    """Return the outputs (N,) at (W, a) of the network linearised at (W0, a0)."""
    # BEGIN SOLUTION
    return outputs(x, W0, a0) + jvp(x, W0, a0, W - W0, a - a0)
    # END SOLUTION


def tangent_kernel(x, W, a):
    """Return Theta = J J' (N, N) at (W, a)."""
    # BEGIN SOLUTION
    d, n = W.shape
    z = x @ W / np.sqrt(d)
    features, slopes = phi(z), slope(z) * a
    return (features @ features.T + (x @ x.T / d) * (slopes @ slopes.T)) / n
    # END SOLUTION


# --------------------------------------------------------------------------------------------- part 2: training


def train(x, y, W, a, lr, steps):
    """Run full-batch gradient descent from (W, a); return the outputs initially and after each step, (steps + 1, N)."""
    # BEGIN SOLUTION
    rate = lr / len(y) if LOSS == "mean" else lr
    f = [outputs(x, W, a)]
    for _ in range(steps):
        dW, da = vjp(x, W, a, f[-1] - y)
        W, a = W - rate * dW, a - rate * da
        f.append(outputs(x, W, a))
    return np.array(f)
    # END SOLUTION


def train_lin(x, y, W0, a0, lr, steps):
    """Train the network linearised at (W0, a0) from (W0, a0); return its outputs as `train` does, (steps + 1, N)."""
    # BEGIN SOLUTION
    rate = lr / len(y) if LOSS == "mean" else lr
    W, a, f = W0, a0, [outputs(x, W0, a0)]
    for _ in range(steps):
        dW, da = vjp(x, W0, a0, f[-1] - y)
        W, a = W - rate * dW, a - rate * da
        f.append(f_lin(x, W0, a0, W, a))
    return np.array(f)
    # END SOLUTION


def train_centred(x, y, W, a, alpha, lr, steps):
    """Train F = alpha (f - f_0) at the rate lr / alpha^2; return F initially and after each step, (steps + 1, N)."""
    # BEGIN SOLUTION
    rate = (lr / len(y) if LOSS == "mean" else lr) / alpha**2
    f0 = outputs(x, W, a)
    f = [np.zeros_like(f0)]
    for _ in range(steps):
        dW, da = vjp(x, W, a, alpha * (f[-1] - y))
        W, a = W - rate * dW, a - rate * da
        f.append(alpha * (outputs(x, W, a) - f0))
    return np.array(f)
    # END SOLUTION


def deviation(x, y, W, a, lr, steps):
    """Return the network's distance from its own linearisation: sup over t of |f_t - f_t^lin|, a number."""
    # BEGIN SOLUTION
    apart = np.abs(train(x, y, W, a, lr, steps) - train_lin(x, y, W, a, lr, steps))
    each = np.sqrt(np.mean(apart**2, axis=1)) if NORM == "rms" else apart.max(axis=1)
    return float(each.max())
    # END SOLUTION


# ------------------------------------------------------------------------------------------ part 3: the exponent


def measure(x, y, widths, seeds, lr, steps, seed):
    """Return the deviations (K, seeds) of the networks draw(seed, n, s, d), for K widths n and s = 0 ... seeds - 1."""
    # BEGIN SOLUTION
    d = x.shape[1]
    return np.array([[deviation(x, y, *draw(seed, n, s, d), lr, steps) for s in range(seeds)] for n in widths])
    # END SOLUTION


def fit(widths, values, confidence):
    """Fit A n^b to values (K, S) at K widths; return (b, low, high), with the ends of the interval of b."""
    # BEGIN SOLUTION
    log_n = np.repeat(np.log(widths), values.shape[1])
    log_v = np.log(values).ravel()
    centred = log_n - log_n.mean()
    b = centred @ log_v / (centred @ centred)
    rest = log_v - log_v.mean() - b * centred
    error = np.sqrt(rest @ rest / (len(rest) - 2) / (centred @ centred))
    reach = stdtrit(len(rest) - 2, (1 + confidence) / 2) * error
    return b, b - reach, b + reach
    # END SOLUTION


def verdict(low, high, theory, against):
    """Return "pass" if [low, high] is within |theory - against| / 2 of theory, "fail" if outside, else "undecided"."""
    # BEGIN SOLUTION
    half = abs(theory - against) / 2
    if theory - half < low and high < theory + half:
        return "pass"
    return "fail" if high < theory - half or low > theory + half else "undecided"
    # END SOLUTION


def study(x, y, widths, lr, steps, seed, theory, against, budget, level):
    """Use 4, 8, ... seeds, at most `budget`, until decided; return (verdict, seeds, b, low, high) of the last look."""
    # BEGIN SOLUTION
    seeds, look = 4, 1
    while True:
        b, low, high = fit(widths, measure(x, y, widths, seeds, lr, steps, seed), 1 - level / 2**look)
        said = verdict(low, high, theory, against)
        if said != "undecided" or 2 * seeds > budget:
            return said, seeds, b, low, high
        seeds, look = 2 * seeds, look + 1
    # END SOLUTION


# ------------------------------------------------------------------------------------------------ the experiment


def movement(x, y, widths, seeds, lr, steps, seed):
    """Return |Theta_T - Theta_0| / |Theta_0| (Frobenius) after training the networks of `measure`: (K, seeds)."""
    # BEGIN SOLUTION
    rate, found = lr / len(y) if LOSS == "mean" else lr, []
    for n in widths:
        for s in range(seeds):
            W, a = draw(seed, n, s, x.shape[1])
            start = tangent_kernel(x, W, a)
            for _ in range(steps):
                dW, da = vjp(x, W, a, outputs(x, W, a) - y)
                W, a = W - rate * dW, a - rate * da
            found.append(np.linalg.norm(tangent_kernel(x, W, a) - start) / np.linalg.norm(start))
    return np.reshape(found, (len(widths), seeds))
    # END SOLUTION
