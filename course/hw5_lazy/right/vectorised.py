"""Put all parameters into one vector, form the Jacobian as a matrix, and train the linearisation in function space."""

import numpy as np
from scipy import special, stats
from variant import activation, loss, norm

PHI = {"tanh": np.tanh, "sin": np.sin, "erf": special.erf}[activation]
SLOPE = {
    "tanh": lambda z: np.cosh(np.clip(z, -300, 300)) ** -2.0,
    "sin": np.cos,
    "erf": lambda z: np.exp(-z * z) * 2 / np.pi**0.5,
}[activation]


def features(x, W):
    return PHI(x @ W / len(W) ** 0.5)


def outputs(x, W, a):
    return features(x, W) @ a / len(a) ** 0.5


def jacobian(x, W, a):
    """Return the Jacobian, (N, d n + n)."""
    by_W = x[:, :, None] * (SLOPE(x @ W / len(W) ** 0.5) * a)[:, None, :] / W.size**0.5
    return np.hstack([by_W.reshape(len(x), -1), features(x, W) / len(a) ** 0.5])


def join(W, a):
    return np.concatenate([W.ravel(), a])


def split(theta, like):
    return theta[: like.size].reshape(like.shape), theta[like.size :]


def jvp(x, W, a, dW, da):
    return jacobian(x, W, a) @ join(dW, da)


def f_lin(x, W0, a0, W, a):
    return outputs(x, W0, a0) + jacobian(x, W0, a0) @ (join(W, a) - join(W0, a0))


def tangent_kernel(x, W, a):
    J = jacobian(x, W, a)
    return J @ J.T


def weight(y):
    return 1 / len(y) if loss == "mean" else 1.0


def train_centred(x, y, W, a, alpha, lr, steps, centred=True):
    f0 = outputs(x, W, a) * centred
    theta, shape, found = join(W, a), W, []
    for _ in range(steps + 1):
        W, a = split(theta, shape)
        found.append(alpha * (outputs(x, W, a) - f0))
        theta = theta - lr * weight(y) / alpha * (found[-1] - y) @ jacobian(x, W, a)
    return np.stack(found)


def train(x, y, W, a, lr, steps):
    return train_centred(x, y, W, a, 1.0, lr, steps, centred=False)


def train_lin(x, y, W0, a0, lr, steps):
    contraction = np.eye(len(x)) - lr * weight(y) * tangent_kernel(x, W0, a0)
    rest = [outputs(x, W0, a0) - y]
    for _ in range(steps):
        rest.append(contraction @ rest[-1])
    return np.stack(rest) + y


def deviation(x, y, W, a, lr, steps):
    apart = train(x, y, W, a, lr, steps) - train_lin(x, y, W, a, lr, steps)
    p = 2 if norm == "rms" else np.inf
    return np.linalg.norm(apart, p, axis=1).max() / (len(y) ** 0.5 if norm == "rms" else 1)


def draw(seed, n, s, d):
    rng = np.random.default_rng([seed, n, s])
    return rng.standard_normal((d, n)), rng.standard_normal(n)


def measure(x, y, widths, seeds, lr, steps, seed):
    found = [deviation(x, y, *draw(seed, n, s, x.shape[1]), lr, steps) for n in widths for s in range(seeds)]
    return np.reshape(found, (len(widths), seeds))


def fit(widths, values, confidence):
    line = stats.linregress(np.repeat(np.log(widths), values.shape[1]), np.log(values).ravel())
    return line.slope, *stats.t.interval(confidence, values.size - 2, line.slope, line.stderr)


def verdict(low, high, theory, against):
    near = [abs(b - theory) < abs(theory - against) / 2 for b in (low, high)]
    if all(near):
        return "pass"
    return "undecided" if any(near) or (low < theory < high) else "fail"


def study(x, y, widths, lr, steps, seed, theory, against, budget, level):
    for look in range(1, 40):
        seeds = 2 ** (look + 1)
        found = fit(widths, measure(x, y, widths, seeds, lr, steps, seed), 1 - level / 2**look)
        said = verdict(*found[1:], theory, against)
        if said != "undecided" or 2 * seeds > budget:
            return said, seeds, *found
