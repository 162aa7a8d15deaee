"""Process one eigenvector and one output at a time."""

import math

import numpy as np
from variant import layout, loss, trained


def per(K):
    return len(K) if loss == "mean" else 1


def pairs(K):
    """Yield (eigenvalue, eigenvector); eigenvalues that are 0 up to rounding are set to exactly 0."""
    lam, V = np.linalg.eigh(K)
    for i in range(len(lam)):
        yield (float(lam[i]) if lam[i] > 1e-10 * lam[-1] else 0.0), V[:, i]


def step(K, f, y, lr):
    after = np.empty_like(f)
    for n in range(len(f)):
        for c in range(f.shape[1]):
            slope = sum(K[n, m] * (f[m, c] - y[m, c]) for m in range(len(f))) / per(K)
            after[n, c] = f[n, c] - lr * slope
    return after


def flow(K, y, t, f0):
    f = f0.copy()
    for lam, v in pairs(K):
        done = 0.0 if lam == 0 else 1 - math.exp(-lam * t / per(K))
        for c in range(y.shape[1]):
            f[:, c] += done * (v @ (y[:, c] - f0[:, c])) * v
    return f


def max_learning_rate(K):
    return 2 * per(K) / max(lam for lam, _ in pairs(K))


def descent(K, y, lr, steps, f0):
    f = y.copy()
    for lam, v in pairs(K):
        kept = 1 - lr * lam / per(K)
        if abs(kept) > 1:
            raise ValueError("one of the directions grows")
        for c in range(y.shape[1]):
            f[:, c] += kept**steps * (v @ (f0[:, c] - y[:, c])) * v
    return f


def coefficients(K, r, t):
    """Return the coefficients a_t for one output with the residual r = y - f0."""
    a = np.zeros(len(r))
    for lam, v in pairs(K):
        if lam > 0:
            a += -math.expm1(-lam * t / per(K)) / lam * (v @ r) * v
        elif t < math.inf:
            a += t / per(K) * (v @ r) * v
    return a


def row(K_test, m):
    return K_test[m] if layout == "test_first" else K_test[:, m]


def count(K_test):
    return K_test.shape[0 if layout == "test_first" else 1]


def predict(K, K_test, y, t, f0, f0_test):
    f = f0_test.copy()
    for c in range(y.shape[1]):
        a = coefficients(K, y[:, c] - f0[:, c], t)
        for m in range(len(f)):
            f[m, c] += row(K_test, m) @ a
    return f


def weights(J, y, t, f0):
    a = coefficients(J @ J.T, y - f0, t)
    return np.array([sum(J[n, p] * a[n] for n in range(len(a))) for p in range(J.shape[1])])


def posterior(K, K_test, K_prior, y):
    M = count(K_test)
    mean, cov = np.empty((M, y.shape[1])), np.empty((M, M))
    for m in range(M):
        weight = np.linalg.solve(K, row(K_test, m))
        for c in range(y.shape[1]):
            mean[m, c] = weight @ y[:, c]
        for j in range(M):
            cov[m, j] = K_prior[m, j] - weight @ row(K_test, j)
    return mean, cov


def ensemble_mean(K, K_test, Theta, Theta_test, y, t):
    if trained == "last":
        Theta, Theta_test = K, K_test
    return predict(Theta, Theta_test, y, t, 0 * y, np.zeros((count(K_test), y.shape[1])))


def ensemble_cov(K, K_test, K_prior, Theta, Theta_test, t):
    """Return the covariance of the random part of f_t(x), which is f_0(x) - sum_n A_n f_0(x_n)."""
    used, test = (Theta, Theta_test) if trained == "all" else (K, K_test)
    M, N = count(K_test), len(K)
    A = [coefficients(used, row(test, m), t) for m in range(M)]
    cov = np.empty((M, M))
    for i in range(M):
        for j in range(M):
            cov[i, j] = K_prior[i, j] - A[j] @ row(K_test, i) - A[i] @ row(K_test, j)
            cov[i, j] += sum(A[i][n] * K[n, k] * A[j][k] for n in range(N) for k in range(N))
    return cov
