"""Write most formulas as einsums over eigenvectors; the covariance is simpler if only the last layer is trained."""

import numpy as np
from variant import layout, loss, trained

TEST = "mn" if layout == "test_first" else "nm"


def step(K, f, y, lr):
    return f - lr * np.einsum("nm,mc->nc", K, f - y) / (len(y) if loss == "mean" else 1)


def eig(K):
    lam, V = np.linalg.eigh(K)
    lam[lam < 1e-10 * lam.max()] = 0
    return lam, V


def learned(lam, t):
    """Return 1 - exp(-lam t), with lam divided by the loss's divisor."""
    if np.isinf(t):
        return np.where(lam > 0, 1.0, 0.0)
    return -np.expm1(-lam * t / (len(lam) if loss == "mean" else 1))


def over(lam, t):
    """Return learned(lam, t) / lam, or 0 if lam is 0 (no result depends on this value)."""
    return np.divide(learned(lam, t), lam, out=np.zeros_like(lam), where=lam > 0)


def flow(K, y, t, f0):
    lam, V = eig(K)
    return f0 + np.einsum("ni,i,mi,mc->nc", V, learned(lam, t), V, y - f0)


def max_learning_rate(K):
    return 2 / np.linalg.eigvalsh(K).max() * (len(K) if loss == "mean" else 1)


def descent(K, y, lr, steps, f0):
    lam, V = eig(K)
    kept = 1 - lr * lam / (len(y) if loss == "mean" else 1)
    if np.any(np.abs(kept) > 1 + 1e-12):
        raise ValueError(f"it diverges by a factor {np.abs(kept).max():g} at each step")
    return y + np.einsum("ni,i,mi,mc->nc", V, kept**steps, V, f0 - y)


def predict(K, K_test, y, t, f0, f0_test):
    lam, V = eig(K)
    return f0_test + np.einsum(f"{TEST},ni,i,ki,kc->mc", K_test, V, over(lam, t), V, y - f0)


def weights(J, y, t, f0):
    U, s, V = np.linalg.svd(J, full_matrices=False)
    lam = np.where(s > 1e-6 * s.max(), s * s, 0.0)
    if np.isinf(t):
        done = 1.0 * (lam > 0)
    else:
        done = -np.expm1(-lam * t / (len(y) if loss == "mean" else 1))
    return np.einsum("ip,i,ni,n->p", V, np.divide(done, s, out=np.zeros_like(s), where=lam > 0), U, y - f0)


def posterior(K, K_test, K_prior, y):
    inverse = np.linalg.inv(K)
    mean = np.einsum(f"{TEST},nk,kc->mc", K_test, inverse, y)
    other = TEST.replace("m", "j").replace("n", "k")
    return mean, K_prior - np.einsum(f"{TEST},nk,{other}->mj", K_test, inverse, K_test)


def ensemble_mean(K, K_test, Theta, Theta_test, y, t):
    k, k_test = (Theta, Theta_test) if trained == "all" else (K, K_test)
    return predict(k, k_test, y, t, 0 * y, 0.0)


def ensemble_cov(K, K_test, K_prior, Theta, Theta_test, t):
    if trained == "last":
        lam, V = eig(K)
        b = np.einsum(f"{TEST},ni->mi", K_test, V)
        return K_prior - np.einsum("mi,i,ji->mj", b, over(lam, 2 * t), b)
    lam, V = eig(Theta)
    A = np.einsum(f"{TEST},ni,i,ki->mk", Theta_test, V, over(lam, t), V)
    cross = np.einsum(f"jn,{TEST}->jm", A, K_test)
    return K_prior + np.einsum("mn,nk,jk->mj", A, K, A) - cross - cross.T
