"""Compute one pair of inputs and one entry at a time, following the formulas literally."""

import math

import numpy as np
from variant import activation, bias


def dense(K, Theta, w_std, b_std):
    after, tangent = np.empty_like(K), np.empty_like(K)
    for at in np.ndindex(K.shape):
        after[at], tangent[at] = layer(K[at], Theta[at], w_std, b_std)
    return after, tangent


def layer(K, Theta, w_std, b_std):
    after = w_std**2 * K
    return (after + b_std**2 if bias == "drawn" else after), w_std**2 * Theta + after + b_std**2


def angles(x1, x2):
    found = np.empty((len(x1), len(x2)))
    for i, x in enumerate(x1):
        for j, z in enumerate(x2):
            u, v = x / math.dist(x, 0 * x), z / math.dist(z, 0 * z)
            found[i, j] = 2 * math.atan2(math.dist(u, v), math.dist(u, -v))
    return found


def moment(K, q, q_prime):
    if activation == "erf":
        r = (1 + 2 * q) * (1 + 2 * q_prime)
        return 2 / math.pi * math.asin(2 * K / math.sqrt(r)), 4 / (math.pi * math.sqrt(r - 4 * K * K))
    if q == 0 or q_prime == 0:
        return 0.0, 0.0
    c = max(-1.0, min(1.0, K / math.sqrt(q * q_prime)))
    a = math.acos(c)
    return math.sqrt(q * q_prime) * (math.sin(a) + (math.pi - a) * c) / (2 * math.pi), (math.pi - a) / (2 * math.pi)


def dual(K, q1, q2):
    T, T_dot = np.empty_like(K), np.empty_like(K)
    for i, j in np.ndindex(K.shape):
        T[i, j], T_dot[i, j] = moment(K[i, j], q1[i], q2[j])
    return T, T_dot


def kernels(x1, x2, depth, w_std, b_std):
    nngp, ntk = np.empty((len(x1), len(x2))), np.empty((len(x1), len(x2)))
    for i, x in enumerate(x1.tolist()):
        for j, z in enumerate(x2.tolist()):
            d = len(x)
            K = sum(a * b for a, b in zip(x, z, strict=True)) / d
            q, q_prime = sum(a * a for a in x) / d, sum(a * a for a in z) / d
            K, Theta = layer(K, 0.0, w_std, b_std)
            q, q_prime = layer(q, 0.0, w_std, b_std)[0], layer(q_prime, 0.0, w_std, b_std)[0]
            for _ in range(depth):
                T, T_dot = moment(K, q, q_prime)
                K, Theta = layer(T, Theta * T_dot, w_std, b_std)
                q = layer(moment(q, q, q)[0], 0.0, w_std, b_std)[0]
                q_prime = layer(moment(q_prime, q_prime, q_prime)[0], 0.0, w_std, b_std)[0]
            nngp[i, j], ntk[i, j] = K, Theta
    return nngp, ntk


def forward(x, params, w_std, b_std):
    """Return the pre-activation of each unit."""
    W, b, _, _ = params
    return [w_std / math.sqrt(len(x)) * float(x @ W[:, j]) + b_std * b[j] for j in range(len(b))]


def phi(h):
    return max(h, 0.0) if activation == "relu" else math.erf(h)


def slope(h):
    return float(h > 0) if activation == "relu" else 2 / math.sqrt(math.pi) * math.exp(-h * h)


def network(x, params, w_std, b_std):
    a, c = params[2:]
    f = np.empty(len(x))
    for i in range(len(x)):
        units = forward(x[i], params, w_std, b_std)
        f[i] = b_std * c[0] + w_std / math.sqrt(len(a)) * sum(a[j] * phi(h) for j, h in enumerate(units))
    return f


def gradient(x, params, w_std, b_std):
    """Return the derivatives with respect to all parameters in one array."""
    a, m = params[2], w_std / math.sqrt(len(params[2]))
    found = [b_std]
    for j, h in enumerate(forward(x, params, w_std, b_std)):
        back = m * a[j] * slope(h)
        found += [m * phi(h), b_std * back, *(w_std / math.sqrt(len(x)) * back * x)]
    return np.array(found)


def empirical_ntk(x1, x2, params, w_std, b_std):
    found = np.empty((len(x1), len(x2)))
    for i, x in enumerate(x1):
        for j, z in enumerate(x2):
            found[i, j] = gradient(x, params, w_std, b_std) @ gradient(z, params, w_std, b_std)
    return found


def sample(x, width, seeds, w_std, b_std):
    found = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        W = rng.standard_normal((x.shape[1], width))
        b = rng.standard_normal(width) if bias == "drawn" else np.zeros(width)
        a = rng.standard_normal(width)
        c = rng.standard_normal(1) if bias == "drawn" else np.zeros(1)
        found.append(empirical_ntk(x, x, (W, b, a, c), w_std, b_std))
    return np.array(found)


def z_test(samples, theory, level):
    z = np.empty(theory.shape)
    agrees = True
    for at in np.ndindex(theory.shape):
        values = [float(s[at]) for s in samples]
        mean = sum(values) / len(values)
        variance = sum((v - mean) ** 2 for v in values) / (len(values) - 1)
        z[at] = (mean - theory[at]) / math.sqrt(variance / len(values))
        agrees = agrees and math.erfc(abs(z[at]) / math.sqrt(2)) >= level / theory.size
    return z, bool(agrees)


def experiment(x, width, seeds, w_std, b_std, level):
    _, theory = kernels(x, x, 1, w_std, b_std)
    return z_test(sample(x, width, seeds, w_std, b_std), theory, level)
