"""Avoid eigenvectors: use matrix exponentials, powers by repeated squaring, and a pseudo-inverse at t = inf."""

import numpy as np
from scipy.linalg import expm
from variant import layout, loss, trained


def rate(y):
    """Return the divisor of the loss."""
    return len(y) if loss == "mean" else 1


def laid(K_test):
    return K_test if layout == "test_first" else K_test.T


def step(K, f, y, lr):
    return f + K @ (y - f) * (lr / rate(y))


def solver(K, t):
    """Integrate exp(-K s / rate) / rate over s from 0 to t. The integral is a block of one matrix exponential."""
    if t == np.inf:
        return np.linalg.pinv(K, rcond=1e-10, hermitian=True)
    n = len(K)
    both = np.block([[-K * t / rate(K), np.eye(n) * t / rate(K)], [np.zeros((n, 2 * n))]])
    return expm(both)[:n, n:]


def flow(K, y, t, f0):
    if t == np.inf:
        return f0 + K @ solver(K, t) @ (y - f0)
    return y + expm(-K * t / rate(y)) @ (f0 - y)


def max_learning_rate(K):
    return 2 * rate(K) / np.linalg.norm(K, 2)


def descent(K, y, lr, steps, f0):
    if lr >= max_learning_rate(K):
        raise ValueError("the learning rate is too large")
    return y + np.linalg.matrix_power(np.eye(len(K)) - lr / rate(y) * K, steps) @ (f0 - y)


def predict(K, K_test, y, t, f0, f0_test):
    return f0_test + laid(K_test) @ solver(K, t) @ (y - f0)


def weights(J, y, t, f0):
    if t == np.inf:
        return np.linalg.pinv(J, rcond=1e-6) @ (y - f0)
    return J.T @ solver(J @ J.T, t) @ (y - f0)


def posterior(K, K_test, K_prior, y):
    k = laid(K_test)
    return k @ np.linalg.solve(K, y), K_prior - k @ np.linalg.solve(K, k.T)


def start(K, K_test, Theta, Theta_test, t):
    if trained == "last":
        Theta, Theta_test = K, K_test
    return laid(Theta_test) @ solver(Theta, t)


def ensemble_mean(K, K_test, Theta, Theta_test, y, t):
    return start(K, K_test, Theta, Theta_test, t) @ y


def ensemble_cov(K, K_test, K_prior, Theta, Theta_test, t):
    """Return the covariance B C B' with B = (I, -A). C is the covariance of f0 on all inputs, the test inputs first."""
    k = laid(K_test)
    every = np.block([[K_prior, k], [k.T, K]])
    map_ = np.hstack([np.eye(len(k)), -start(K, K_test, Theta, Theta_test, t)])
    return map_ @ every @ map_.T
