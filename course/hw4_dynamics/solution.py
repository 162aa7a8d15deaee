"""Assignment 4, training in closed form. Write the functions below; the handout says what each one returns.

Besides the standard library, you may import only NumPy and SciPy. Every array is float64. Never modify the inputs.
"""

import numpy as np
from variant import layout as LAYOUT  # of K_test: "test_first" (M, N) or "train_first" (N, M)
from variant import loss as LOSS  # "mean": 1/(2N) sum |f - y|^2;  "sum": 1/2 sum |f - y|^2
from variant import trained as TRAINED  # "all" layers of the ensemble, or the "last" one
from variant import weight as WEIGHT  # multiplies the loss

# BEGIN SOLUTION
LOST = 1e-10  # fraction of the largest eigenvalue; smaller eigenvalues count as rounding errors


def divisor(N):
    """Return the divisor of the loss for N examples."""
    return (N if LOSS == "mean" else 1) / WEIGHT


def eigen(K):
    """Return the eigenvalues divided by the loss's divisor, with rounding errors set to 0, and the eigenvectors."""
    lam, V = np.linalg.eigh(K)
    return np.where(lam > LOST * lam[-1], lam, 0.0) / divisor(len(K)), V


def rows(K_test):
    """Return K_test in the layout (M, N)."""
    return K_test if LAYOUT == "test_first" else K_test.T


def gain(lam, t):
    """Return (1 - exp(-lam t)) / lam; if lam = 0, return t, or 0 if t = inf (no result then depends on it)."""
    some = np.where(lam > 0, lam, 1.0)
    if np.isinf(t):
        return (lam > 0) / some
    return np.where(lam > 0, -np.expm1(-lam * t) / some, t)


def matrix(K, t):
    """Return the matrix (N, N) that maps y - f0 to the coefficients a_t."""
    lam, V = eigen(K)
    return V * gain(lam, t) @ V.T / divisor(len(K))


# END SOLUTION


def step(K, f, y, lr):
    """Return the outputs (N, C) after one gradient descent step, for K (N, N), outputs f (N, C), targets y (N, C)."""
    # BEGIN SOLUTION
    return f - lr / divisor(len(y)) * K @ (f - y)
    # END SOLUTION


def flow(K, y, t, f0):
    """Return the outputs (N, C) of gradient flow at time t, 0 <= t <= inf, starting from f0 (N, C)."""
    # BEGIN SOLUTION
    return f0 + K @ (matrix(K, t) @ (y - f0))
    # END SOLUTION


def max_learning_rate(K):
    """Return the largest learning rate at which gradient descent does not diverge."""
    # BEGIN SOLUTION
    return float(2 / eigen(K)[0][-1])
    # END SOLUTION


def descent(K, y, lr, steps, f0):
    """Return the outputs (N, C) after `steps` gradient descent steps from f0; raise ValueError if lr is too large."""
    # BEGIN SOLUTION
    if lr > max_learning_rate(K):
        raise ValueError(f"lr = {lr:g} diverges: it has to stay below {max_learning_rate(K):g}")
    lam, V = eigen(K)
    return y + V @ ((1 - lr * lam)[:, None] ** steps * (V.T @ (f0 - y)))
    # END SOLUTION


def predict(K, K_test, y, t, f0, f0_test):
    """Return the outputs (M, C) on M test inputs at time t, given f0_test (M, C) and K_test in the handout's layout."""
    # BEGIN SOLUTION
    return f0_test + rows(K_test) @ (matrix(K, t) @ (y - f0))
    # END SOLUTION


def weights(J, y, t, f0):
    """Return theta_t - theta_0 (P,) of gradient flow, given J (N, P), y (N,) and f0 (N,)."""
    # BEGIN SOLUTION
    return J.T @ (matrix(J @ J.T, t) @ (y - f0))
    # END SOLUTION


def posterior(K, K_test, K_prior, y):
    """Return the posterior mean (M, C) and covariance (M, M), given K (N, N), K_test, K_prior (M, M) and y (N, C)."""
    # BEGIN SOLUTION
    A = rows(K_test) @ np.linalg.inv(K)
    return A @ y, K_prior - A @ rows(K_test).T
    # END SOLUTION


# BEGIN SOLUTION
def taken(K, K_test, Theta, Theta_test, t):
    """Return the matrix A (M, N) that maps y - f0 to the change in the test outputs during training."""
    return rows(Theta_test) @ matrix(Theta, t) if TRAINED == "all" else rows(K_test) @ matrix(K, t)


# END SOLUTION


def ensemble_mean(K, K_test, Theta, Theta_test, y, t):
    """Return the mean (M, C) of an infinitely wide network's outputs at time t, over its initial weights."""
    # BEGIN SOLUTION
    return taken(K, K_test, Theta, Theta_test, t) @ y
    # END SOLUTION


def ensemble_cov(K, K_test, K_prior, Theta, Theta_test, t):
    """Return the covariance (M, M) of each output of an infinitely wide network at time t, over its initial weights."""
    # BEGIN SOLUTION
    A = taken(K, K_test, Theta, Theta_test, t)
    cross = A @ rows(K_test).T
    return K_prior + A @ K @ A.T - cross - cross.T
    # END SOLUTION


# ------------------------------------------------------------------------------------------------ the experiment


def own_kernel(x):
    """Return the tangent kernel (N, N) of a network with one hidden ReLU layer, w_std = sqrt(2) and no biases."""
    # BEGIN SOLUTION
    K = 2 * x @ x.T / x.shape[1]
    size = np.sqrt(np.outer(K.diagonal(), K.diagonal()))
    angle = np.arccos(np.clip(K / size, -1, 1))
    slopes = (np.pi - angle) / (2 * np.pi)
    return 2 * (size * np.sin(angle) / (2 * np.pi) + slopes * K) + 2 * slopes * K
    # END SOLUTION


def learning_curve(x, y, sizes, draws, seed):
    """Return mean squared errors and misclassified fractions, (2, K, draws), for training sets of K sizes."""
    # BEGIN SOLUTION
    K, found = own_kernel(x), []
    for N in sizes:
        for s in range(draws):
            order = np.random.default_rng([seed, N, s]).permutation(len(x))
            at, test = order[:N], order[N:]
            K_test = K[np.ix_(test, at)] if LAYOUT == "test_first" else K[np.ix_(at, test)]
            f = predict(K[np.ix_(at, at)], K_test, y[at], np.inf, 0 * y[at], 0 * y[test])
            squared = np.mean(np.sum((f - y[test]) ** 2, axis=1))
            found.append((squared, np.mean(f.argmax(axis=1) != y[test].argmax(axis=1))))
    return np.reshape(found, (len(sizes), draws, 2)).transpose(2, 0, 1)
    # END SOLUTION
