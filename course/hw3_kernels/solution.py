"""Assignment 3, the kernels of a wide network. Write the functions below; the handout says what each one returns.

Besides the standard library, you may import only NumPy and SciPy. Every array is float64. Never modify the inputs.
"""

import numpy as np
from scipy.special import erf, erfc
from variant import activation as ACTIVATION  # "relu" or "erf"
from variant import bias as BIAS  # "drawn": b ~ N(0, 1) at the start; "zero": b = 0 at the start, and trained
from variant import gain as GAIN  # multiplies the activation


def dense(K, Theta, w_std, b_std):
    """Map K and Theta (N, M) of a layer's inputs to K and Theta (N, M) of its outputs."""
    # BEGIN SOLUTION
    drawn = b_std**2 if BIAS == "drawn" else 0.0
    return w_std**2 * K + drawn, w_std**2 * Theta + w_std**2 * K + b_std**2
    # END SOLUTION


def angles(x1, x2):
    """Return the angles (N, M), from 0 to pi, between the rows of x1 (N, d) and of x2 (M, d), none of which is zero."""
    # BEGIN SOLUTION
    n1, n2 = np.linalg.norm(x1, axis=1)[:, None, None], np.linalg.norm(x2, axis=1)[None, :, None]
    a, b = n2 * x1[:, None, :], n1 * x2[None, :, :]
    return 2 * np.arctan2(np.linalg.norm(a - b, axis=2), np.linalg.norm(a + b, axis=2))
    # END SOLUTION


# BEGIN SOLUTION
def moments(K, q, q_prime):
    """Return E phi(u) phi(u'), E phi'(u) phi'(u') entry by entry; the three arguments are broadcast."""
    if ACTIVATION == "erf":
        r = (1 + 2 * q) * (1 + 2 * q_prime)
        T, T_dot = 2 / np.pi * np.arcsin(2 * K / np.sqrt(r)), 4 / np.pi / np.sqrt(r - 4 * K**2)
        return GAIN**2 * T, GAIN**2 * T_dot
    norm = np.sqrt(q * q_prime)
    a = np.arccos(np.clip(K / np.where(norm > 0, norm, 1), -1, 1))
    T = norm * (np.sin(a) + (np.pi - a) * np.cos(a)) / (2 * np.pi)
    return GAIN**2 * T, GAIN**2 * np.where(norm > 0, np.pi - a, 0) / (2 * np.pi)


# END SOLUTION


def dual(K, q1, q2):
    """Return T and T_dot, both (N, M), for covariances K (N, M) and variances q1 (N,), q2 (M,)."""
    # BEGIN SOLUTION
    return moments(K, q1[:, None], q2[None, :])
    # END SOLUTION


def kernels(x1, x2, depth, w_std, b_std):
    """Return the NNGP kernel and the NTK, both (N, M), for `depth` hidden layers, x1 (N, d) and x2 (M, d)."""
    # BEGIN SOLUTION
    d = x1.shape[1]
    K, Theta = dense(x1 @ x2.T / d, np.zeros((len(x1), len(x2))), w_std, b_std)
    q1, q2 = (dense((x**2).sum(axis=1) / d, 0.0, w_std, b_std)[0] for x in (x1, x2))
    for _ in range(depth):
        T, T_dot = dual(K, q1, q2)
        K, Theta = dense(T, Theta * T_dot, w_std, b_std)
        q1, q2 = (dense(moments(q, q, q)[0], 0.0, w_std, b_std)[0] for q in (q1, q2))
    return K, Theta
    # END SOLUTION


# BEGIN SOLUTION
def phi(h):
    return GAIN * (np.maximum(h, 0) if ACTIVATION == "relu" else erf(h))


def slope(h):
    return GAIN * ((h > 0) if ACTIVATION == "relu" else 2 / np.sqrt(np.pi) * np.exp(-(h**2)))


def hidden(x, params, w_std, b_std):
    """Return h (N, n), the input of the activation."""
    W, b, _, _ = params
    return w_std / np.sqrt(x.shape[1]) * x @ W + b_std * b


# END SOLUTION


def network(x, params, w_std, b_std):
    """Map x (N, d), params = (W (d, n), b (n,), a (n,), c (1,)) to f (N,)."""
    # BEGIN SOLUTION
    _, _, a, c = params
    return w_std / np.sqrt(len(a)) * phi(hidden(x, params, w_std, b_std)) @ a + b_std * c
    # END SOLUTION


def empirical_ntk(x1, x2, params, w_std, b_std):
    """Return the sum over the parameters of df/dparam df'/dparam, (N, M), for x1 (N, d), x2 (M, d), params as above."""
    # BEGIN SOLUTION
    _, _, a, _ = params
    d, n = x1.shape[1], len(a)
    h1, h2 = hidden(x1, params, w_std, b_std), hidden(x2, params, w_std, b_std)
    last = w_std**2 / n * phi(h1) @ phi(h2).T + b_std**2
    back = w_std**2 / n * (slope(h1) * a) @ (slope(h2) * a).T
    return last + back * (w_std**2 / d * x1 @ x2.T + b_std**2)
    # END SOLUTION


def sample(x, width, seeds, w_std, b_std):
    """Return tangent kernels (S, N, N) of S networks of this width on x (N, d), one network for each seed."""
    # BEGIN SOLUTION
    found = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        W = rng.standard_normal((x.shape[1], width))
        b = rng.standard_normal(width) if BIAS == "drawn" else np.zeros(width)
        a = rng.standard_normal(width)
        c = rng.standard_normal(1) if BIAS == "drawn" else np.zeros(1)
        found.append(empirical_ntk(x, x, (W, b, a, c), w_std, b_std))
    return np.array(found)
    # END SOLUTION


def z_test(samples, theory, level):
    """Return z (...) of samples (S, ...) against theory (...), and True if the two agree at this level."""
    # BEGIN SOLUTION
    z = (samples.mean(axis=0) - theory) / (samples.std(axis=0, ddof=1) / np.sqrt(len(samples)))
    p = erfc(np.abs(z) / np.sqrt(2))
    return z, bool(np.min(p) * z.size >= level)
    # END SOLUTION


def experiment(x, width, seeds, w_std, b_std, level):
    """Return z (N, N) of sampled tangent kernels against the NTK, and True if the two agree; x (N, d)."""
    # BEGIN SOLUTION
    return z_test(sample(x, width, seeds, w_std, b_std), kernels(x, x, 1, w_std, b_std)[1], level)
    # END SOLUTION


# ------------------------------------------------------------------------------------------------ the experiment


def draw_functions(K, draws, seed):
    """Return draws of the Gaussian process with covariance K (N, N): K^(1/2) z, (N, draws)."""
    # BEGIN SOLUTION
    lam, V = np.linalg.eigh(K)
    z = np.random.default_rng(seed).standard_normal((len(K), draws))
    return V @ (np.sqrt(np.maximum(lam, 0))[:, None] * (V.T @ z))
    # END SOLUTION


def condition(K, f, known, y):
    """Turn prior draws f (N, S) into posterior draws, which take the values y (k,) at the inputs `known` (k,)."""
    # BEGIN SOLUTION
    return f + K[:, known] @ np.linalg.solve(K[np.ix_(known, known)], y[:, None] - f[known])
    # END SOLUTION


def roughness(x, lags, draws, seed, w_std, b_std):
    """Return the rms over i of f(x[i + lag]) - f(x[i]) on a circle x (N, 2), for NNGP and NTK: (2, lags, draws)."""
    # BEGIN SOLUTION
    found = []
    for kernel in kernels(x, x, 1, w_std, b_std):
        for lag in lags:
            f = draw_functions(kernel, draws, [seed, lag])
            found.append(np.sqrt(np.mean((np.roll(f, -lag, axis=0) - f) ** 2, axis=0)))
    return np.reshape(found, (2, len(lags), draws))
    # END SOLUTION
