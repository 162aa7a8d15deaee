"""Treat both sets of inputs as one, whose kernel has the variances on its diagonal. Compute angles from half-chords."""

import numpy as np
from scipy.special import erf
from scipy.stats import norm
from variant import activation, bias


def dense(K, Theta, w_std, b_std):
    w, b = w_std * w_std, b_std * b_std
    return w * K + b * (bias == "drawn"), w * (K + Theta) + b


def angles(x1, x2):
    u, v = (x / np.sqrt(np.sum(x * x, axis=1, keepdims=True)) for x in (x1, x2))
    apart, sums = np.linalg.norm(u[:, None] - v, axis=-1), np.linalg.norm(u[:, None] + v, axis=-1)
    near, far = (2 * np.arcsin(np.minimum(chord / 2, 1)) for chord in (apart, sums))
    return np.where(apart < sums, near, np.pi - far)


def relu(K, s):
    """Return E phi(u) phi(u') and E phi'(u) phi'(u') for ReLU; s : the products of the standard deviations."""
    there = s > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        c = np.where(there, np.minimum(np.maximum(K / s, -1), 1), 0)
    rest = (np.pi / 2 + np.arcsin(c)) / (2 * np.pi)
    return s * (np.sqrt((1 - c) * (1 + c)) / (2 * np.pi) + rest * c), rest * there


def dual(K, q1, q2):
    if activation == "relu":
        return relu(K, np.sqrt(np.outer(q1, q2)))
    one, two = np.sqrt(1 + 2 * q1)[:, None], np.sqrt(1 + 2 * q2)
    c = 2 * K / one / two
    return np.arcsin(c) * 2 / np.pi, 4 / (np.pi * one * two * np.sqrt((1 - c) * (1 + c)))


def kernels(x1, x2, depth, w_std, b_std):
    x = np.vstack([x1, x2])
    K, Theta = dense(x @ x.T / x.shape[1], 0 * x @ x.T, w_std, b_std)
    for _ in range(depth):
        q = K.diagonal()
        T, T_dot = dual(K, q, q)
        K, Theta = dense(T, Theta * T_dot, w_std, b_std)
    N = len(x1)
    return K[:N, N:], Theta[:N, N:]


def units(x, params, w_std, b_std):
    h = x @ params[0] * (w_std / np.sqrt(x.shape[1])) + b_std * params[1]
    if activation == "relu":
        return np.clip(h, 0, None), np.heaviside(h, 0)
    return erf(h), np.exp(-h * h) * (2 / np.sqrt(np.pi))


def network(x, params, w_std, b_std):
    return units(x, params, w_std, b_std)[0] @ (params[2] * w_std) / np.sqrt(params[2].size) + b_std * params[3]


def jacobian(x, params, w_std, b_std):
    """Return the derivatives of f with respect to all parameters in one array, (N, P)."""
    z, dz = units(x, params, w_std, b_std)
    s = w_std / np.sqrt(params[2].size)
    back = s * dz * params[2]
    first = (x[:, :, None] * back[:, None, :]).reshape(len(x), -1) * (w_std / np.sqrt(x.shape[1]))
    return np.hstack([first, b_std * back, s * z, np.full((len(x), 1), b_std)])


def empirical_ntk(x1, x2, params, w_std, b_std):
    return jacobian(x1, params, w_std, b_std) @ jacobian(x2, params, w_std, b_std).T


def sample(x, width, seeds, w_std, b_std):
    def drawn(seed):
        rng = np.random.default_rng(seed)
        biased = float(bias == "drawn")
        sizes = ((x.shape[1], width), width if biased else 0, width, 1 if biased else 0)
        W, b, a, c = (rng.standard_normal(size) for size in sizes)
        return (W, b, a, c) if biased else (W, np.zeros(width), a, np.zeros(1))

    return np.stack([empirical_ntk(x, x, drawn(seed), w_std, b_std) for seed in seeds])


def z_test(samples, theory, level):
    error = np.sqrt(samples.var(axis=0, ddof=1) / len(samples))
    z = (np.mean(samples, axis=0) - theory) / error
    return z, bool(np.all(np.abs(z) <= norm.isf(level / (2 * z.size))))


def experiment(x, width, seeds, w_std, b_std, level):
    return z_test(sample(x, width, seeds, w_std, b_std), kernels(x, x, 1, w_std, b_std)[1], level)
