"""Compute sums with einsum, angles by orthogonalising one vector against the other, and ReLU's kernel from angles."""

import numpy as np
from scipy.special import erf, ndtr
from variant import activation, bias


def dense(K, Theta, w_std, b_std):
    after = w_std**2 * K + (b_std**2 if bias == "drawn" else 0)
    return after, w_std**2 * (Theta + K) + b_std**2


def angles(x1, x2):
    along = np.einsum("ni,mi->nm", x1, x2)
    step = along / np.einsum("ni,ni->n", x1, x1)[:, None]
    across = x2[None] - np.where(np.abs(step) > 0, step, 0)[:, :, None] * x1[:, None]
    again = np.einsum("nmi,ni->nm", across, x1) / np.einsum("ni,ni->n", x1, x1)[:, None]
    across = across - again[:, :, None] * x1[:, None]  # removes what rounding has left along x1
    return np.arctan2(np.sqrt(np.einsum("nmi,nmi,n->nm", across, across, np.einsum("ni,ni->n", x1, x1))), along)


def pair(K, q1, q2):
    if activation == "erf":
        r = np.einsum("n,m->nm", 1 + 2 * q1, 1 + 2 * q2)
        return 2 / np.pi * np.arcsin(2 * K / np.sqrt(r)), 4 / np.pi * (r - 4 * K**2) ** -0.5
    norm = np.sqrt(np.einsum("n,m->nm", q1, q2))
    some = norm > 0
    c = np.clip(np.divide(K, norm, out=np.zeros_like(K), where=some), -1, 1)
    rest = np.pi - np.arccos(c)
    return norm * (np.sqrt(1 - c**2) + rest * c) / (2 * np.pi), some * rest / (2 * np.pi)


def dual(K, q1, q2):
    return pair(K, q1, q2)


def variances(q):
    return q / 2 if activation == "relu" else 2 / np.pi * np.arcsin(2 * q / (1 + 2 * q))


def kernels(x1, x2, depth, w_std, b_std):
    K = np.einsum("ni,mi->nm", x1, x2) / x1.shape[1]
    q1, q2 = np.einsum("ni,ni->n", x1, x1) / x1.shape[1], np.einsum("ni,ni->n", x2, x2) / x1.shape[1]
    K, Theta = dense(K, np.zeros_like(K), w_std, b_std)
    q1, q2 = dense(q1, q1, w_std, b_std)[0], dense(q2, q2, w_std, b_std)[0]
    for _ in range(depth):
        T, T_dot = pair(K, q1, q2)
        K, Theta = dense(T, Theta * T_dot, w_std, b_std)
        q1, q2 = (dense(variances(q), q, w_std, b_std)[0] for q in (q1, q2))
    return K, Theta


def layers(x, params, w_std, b_std):
    W, b = params[:2]
    h = w_std * np.einsum("ni,ij->nj", x, W) / x.shape[1] ** 0.5 + b_std * b
    if activation == "relu":
        return np.where(h > 0, h, 0), np.where(h > 0, 1.0, 0.0)
    return erf(h), 2 * np.pi**-0.5 * np.exp(-h * h)


def network(x, params, w_std, b_std):
    z, _ = layers(x, params, w_std, b_std)
    return w_std * np.einsum("nj,j->n", z, params[2]) / len(params[2]) ** 0.5 + b_std * params[3]


def gradients(x, params, w_std, b_std):
    """Return df/dW (N, d, n), df/db (N, n), df/da (N, n), df/dc (N, 1)."""
    (z, dz), a = layers(x, params, w_std, b_std), params[2]
    root, n = len(a) ** 0.5, len(x)
    back = np.einsum("nj,j->nj", dz, a) * w_std / root
    return (
        np.einsum("ni,nj->nij", x, back) * w_std / x.shape[1] ** 0.5,
        b_std * back,
        w_std * z / root,
        np.full((n, 1), b_std),
    )


def empirical_ntk(x1, x2, params, w_std, b_std):
    pairs = zip(gradients(x1, params, w_std, b_std), gradients(x2, params, w_std, b_std), strict=True)
    return sum(np.einsum("np,mp->nm", g.reshape(len(g), -1), g2.reshape(len(g2), -1)) for g, g2 in pairs)


def sample(x, width, seeds, w_std, b_std):
    kept = []
    for rng in map(np.random.default_rng, seeds):
        W, b, c = rng.standard_normal((x.shape[1], width)), np.zeros(width), np.zeros(1)
        if bias == "drawn":
            b = rng.standard_normal(width)
        a = rng.standard_normal(width)
        if bias == "drawn":
            c = rng.standard_normal(1)
        kept.append(empirical_ntk(x, x, (W, b, a, c), w_std, b_std))
    return np.stack(kept)


def z_test(samples, theory, level):
    S = len(samples)
    off = samples - theory
    mean = np.einsum("s...->...", off) / S
    variance = np.einsum("s...,s...->...", off - mean, off - mean) / (S - 1)
    z = mean / np.sqrt(variance / S)
    return z, bool(2 * ndtr(-np.abs(z).max()) >= level / z.size)


def experiment(x, width, seeds, w_std, b_std, level):
    return z_test(sample(x, width, seeds, w_std, b_std), kernels(x, x, 1, w_std, b_std)[1], level)
