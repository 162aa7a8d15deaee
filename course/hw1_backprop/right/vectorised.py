"""Use whole-array operations, the slopes as the cache of the activation, and logaddexp for the softmax."""

import numpy as np
from variant import activation, loss, weights

TURN = (lambda W: W) if weights == "in_out" else np.transpose


def dense(x, W, b):
    return np.dot(x, TURN(W)) + b, (x, W)


def dense_backward(u, cache):
    x, W = cache
    return np.dot(u, TURN(W).T), TURN(np.dot(x.T, u)), np.dot(np.ones(len(u), u.dtype), u)


def activate(z):
    if activation == "relu":
        a = np.where(z > 0, z, np.zeros_like(z))
        return a, np.sign(a)
    if activation == "tanh":
        a = np.tanh(z)
        return a, 1 - a * a
    a = np.logaddexp(z, np.zeros((), z.dtype))
    return a, np.exp(z - a)


def activate_backward(u, cache):
    return np.multiply(u, cache)


def log_softmax(z):
    return z - np.logaddexp.reduce(z, axis=1, keepdims=True)


def cross_entropy(z, labels):
    picked = np.take_along_axis(log_softmax(z), labels[:, None], axis=1)
    return -(np.mean if loss == "mean" else np.sum)(picked), (z, labels)


def cross_entropy_backward(u, cache):
    z, labels = cache
    dz = np.exp(log_softmax(z)) - (labels[:, None] == np.arange(z.shape[1])).astype(z.dtype)
    return (dz / len(z) if loss == "mean" else dz) * z.dtype.type(u)


def network(x, params):
    z, caches = dense(x, *params[:2])
    caches = [caches]
    for i in range(2, len(params), 2):
        a, slope = activate(z)
        z, cache = dense(a, *params[i : i + 2])
        caches += [slope, cache]
    return z, caches


def gradients(x, labels, params):
    z, caches = network(x, params)
    value, cache = cross_entropy(z, labels)
    u, found = cross_entropy_backward(1, cache), [None] * len(params)
    for i in range(len(params) - 2, -1, -2):
        u, found[i], found[i + 1] = dense_backward(u, caches[i])
        if i:
            u = activate_backward(u, caches[i - 1])
    return value, found


def gradients_in_parts(x, labels, params, size):
    some = [slice(i, i + size) for i in range(0, len(x), size)]
    each = [gradients(x[part], labels[part], params) for part in some]
    share = [len(x[part]) / len(x) if loss == "mean" else 1.0 for part in some]
    total = [sum(s * g for s, g in zip(share, column)) for column in zip(*(g for _, g in each))]
    return sum(s * value for s, (value, _) in zip(share, each)), total


def twice(x, W, b):
    return network(x, (W, b, W, b))


def twice_backward(u, cache):
    u, dW2, db2 = dense_backward(u, cache[2])
    u, dW1, db1 = dense_backward(activate_backward(u, cache[1]), cache[0])
    return u, dW1 + dW2, db1 + db2


def sgd(p, g, v, lr, momentum):
    new = np.add(np.multiply(v, momentum), g)
    return np.subtract(p, np.multiply(new, lr)), new


def train(x, labels, params, lr, momentum, steps):
    velocity = [np.zeros_like(p) for p in params]
    losses = np.zeros(steps)
    for k in range(steps):
        losses[k], found = gradients(x, labels, params)
        both = [sgd(*three, lr, momentum) for three in zip(params, found, velocity)]
        params, velocity = [p for p, _ in both], [v for _, v in both]
    return params, losses
