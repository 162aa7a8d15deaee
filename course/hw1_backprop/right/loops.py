"""Compute one example and one entry at a time, following the formulas literally."""

import math

import numpy as np
from variant import activation, loss, weights


def weight(W, i, j):
    """Return the weight from input i to output j."""
    return W[i, j] if weights == "in_out" else W[j, i]


def dense(x, W, b):
    y = np.empty((len(x), len(b)), x.dtype)
    for n in range(len(x)):
        for j in range(len(b)):
            y[n, j] = b[j] + sum(x[n, i] * weight(W, i, j) for i in range(x.shape[1]))
    return y, (x, W, b)


def dense_backward(u, cache):
    x, W, b = cache
    dx, dW, db = np.zeros_like(x), np.zeros_like(W), np.zeros_like(b)
    for n in range(len(x)):
        for j in range(len(b)):
            db[j] += u[n, j]
            for i in range(x.shape[1]):
                dx[n, i] += u[n, j] * weight(W, i, j)
                dW[(i, j) if weights == "in_out" else (j, i)] += u[n, j] * x[n, i]
    return dx, dW, db


def phi(z):
    if activation == "relu":
        return max(z, 0)
    return math.tanh(z) if activation == "tanh" else max(z, 0) + math.log1p(math.exp(-abs(z)))


def slope(z):
    if activation == "relu":
        return 1.0 if z > 0 else 0.0
    return 1 - math.tanh(z) ** 2 if activation == "tanh" else math.exp(min(z, 0)) / (1 + math.exp(-abs(z)))


def activate(z):
    a = np.empty_like(z)
    for at in np.ndindex(z.shape):
        a[at] = phi(float(z[at]))
    return a, z


def activate_backward(u, z):
    dz = np.empty_like(z)
    for at in np.ndindex(z.shape):
        dz[at] = u[at] * slope(float(z[at]))
    return dz


def log_softmax(z):
    out = np.empty_like(z)
    for n, row in enumerate(z):
        top = max(row)
        out[n] = row - top - math.log(sum(math.exp(k - top) for k in row))
    return out


def cross_entropy(z, labels):
    total = sum(-row[k] for row, k in zip(log_softmax(z), labels))
    return z.dtype.type(total / len(z) if loss == "mean" else total), (z, labels)


def cross_entropy_backward(u, cache):
    z, labels = cache
    dz = np.empty_like(z)
    for n, row in enumerate(log_softmax(z)):
        for k in range(z.shape[1]):
            dz[n, k] = float(u) * (math.exp(row[k]) - (k == labels[n])) / (len(z) if loss == "mean" else 1)
    return dz


def network(x, params):
    caches = []
    for layer in range(len(params) // 2):
        if layer > 0:
            x, cache = activate(x)
            caches.append((activate_backward, cache))
        x, cache = dense(x, params[2 * layer], params[2 * layer + 1])
        caches.append((dense_backward, cache))
    return x, caches


def gradients(x, labels, params):
    z, caches = network(x, params)
    value, cache = cross_entropy(z, labels)
    u, found = cross_entropy_backward(1.0, cache), []
    while caches:
        backward, cache = caches.pop()
        u = backward(u, cache)
        if backward is dense_backward:
            u, *mine = u
            found = mine + found
    return value, found


def gradients_in_parts(x, labels, params, size):
    loss_sum, sums, begin = 0.0, [np.zeros(p.shape) for p in params], 0
    while begin < len(x):
        end = min(begin + size, len(x))
        value, found = gradients(x[begin:end], labels[begin:end], params)
        count = end - begin if loss == "mean" else 1
        loss_sum += count * value
        for total, g in zip(sums, found):
            total += count * g
        begin = end
    scale = len(x) if loss == "mean" else 1
    return loss_sum / scale, [total / scale for total in sums]


def twice(x, W, b):
    return network(x, [W, b, W, b])


def twice_backward(u, cache):
    (_, first), (_, middle), (_, last) = cache
    u, dW, db = dense_backward(u, last)
    u, dV, dc = dense_backward(activate_backward(u, middle), first)
    return u, dW + dV, db + dc


def sgd(p, g, v, lr, momentum):
    new_p, new_v = np.empty_like(p), np.empty_like(v)
    for at in np.ndindex(p.shape):
        new_v[at] = momentum * v[at] + g[at]
        new_p[at] = p[at] - lr * new_v[at]
    return new_p, new_v


def train(x, labels, params, lr, momentum, steps):
    params, velocity, losses = list(params), [np.zeros(p.shape) for p in params], []
    for _ in range(steps):
        value, found = gradients(x, labels, params)
        losses.append(value)
        for i, g in enumerate(found):
            params[i], velocity[i] = sgd(params[i], g, velocity[i], lr, momentum)
    return params, np.asarray(losses)
