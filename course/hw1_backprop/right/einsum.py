"""Write every sum over an axis as an einsum."""

import numpy as np
import variant


def dense(x, W, b):
    return np.einsum("nd,dk->nk" if variant.weights == "in_out" else "nd,kd->nk", x, W) + b, (x, W)


def dense_backward(u, cache):
    x, W = cache
    if variant.weights == "in_out":
        return np.einsum("nk,dk->nd", u, W), np.einsum("nd,nk->dk", x, u), np.einsum("nk->k", u)
    return np.einsum("nk,kd->nd", u, W), np.einsum("nd,nk->kd", x, u), np.einsum("nk->k", u)


def sigmoid(z):
    return np.asarray(0.5, z.dtype) * (1 + np.tanh(z / 2))


def activate(z):
    if variant.activation == "relu":
        return z * (z > 0), z
    if variant.activation == "tanh":
        return np.tanh(z), z
    return np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z))), z


def activate_backward(u, z):
    slopes = {"relu": lambda: z > 0, "tanh": lambda: 1 - np.tanh(z) ** 2, "softplus": lambda: sigmoid(z)}
    return np.einsum("nk,nk->nk", u, slopes[variant.activation]().astype(z.dtype))


def log_softmax(z):
    z = z - np.max(z, axis=1)[:, None]
    return z - np.log(np.einsum("nk->n", np.exp(z)))[:, None]


def onehot(z, labels):
    return np.eye(z.shape[1], dtype=z.dtype)[labels]


def cross_entropy(z, labels):
    total = -np.einsum("nk,nk->", log_softmax(z), onehot(z, labels))
    return (total / z.dtype.type(len(z)) if variant.loss == "mean" else total), (z, labels)


def cross_entropy_backward(u, cache):
    z, labels = cache
    weight = z.dtype.type(u) / z.dtype.type(len(z) if variant.loss == "mean" else 1)
    return weight * (np.exp(log_softmax(z)) - onehot(z, labels))


def network(x, params):
    pairs = list(zip(params[::2], params[1::2]))
    x, first = dense(x, *pairs[0])
    caches = [first]
    for W, b in pairs[1:]:
        x, middle = activate(x)
        x, last = dense(x, W, b)
        caches += [middle, last]
    return x, caches


def gradients(x, labels, params):
    z, caches = network(x, params)
    loss, cache = cross_entropy(z, labels)
    u, found = cross_entropy_backward(1.0, cache), []
    u, dW, db = dense_backward(u, caches[-1])
    found = [dW, db]
    for middle, first in zip(caches[-2::-2], caches[-3::-2]):
        u, dW, db = dense_backward(activate_backward(u, middle), first)
        found = [dW, db, *found]
    return loss, found


def gradients_in_parts(x, labels, params, size):
    N, loss, total = len(x), 0.0, None
    for i in range(0, N, size):
        n = len(x[i : i + size])
        part, found = gradients(x[i : i + size], labels[i : i + size], params)
        weight = n / N if variant.loss == "mean" else 1.0
        loss += weight * part
        total = [weight * g for g in found] if total is None else [t + weight * g for t, g in zip(total, found)]
    return loss, total


def twice(x, W, b):
    z, first = dense(x, W, b)
    a, middle = activate(z)
    y, last = dense(a, W, b)
    return y, {"first": first, "middle": middle, "last": last}


def twice_backward(u, cache):
    a, dW, db = dense_backward(u, cache["last"])
    x, dV, dc = dense_backward(activate_backward(a, cache["middle"]), cache["first"])
    return x, dW + dV, db + dc


def sgd(p, g, v, lr, momentum):
    return p - lr * (momentum * v + g), momentum * v + g


def train(x, labels, params, lr, momentum, steps):
    losses, velocity = np.zeros(steps), [0 * p for p in params]
    for step in range(steps):
        losses[step], grads = gradients(x, labels, params)
        params, velocity = map(list, zip(*(sgd(p, g, v, lr, momentum) for p, g, v in zip(params, grads, velocity))))
    return params, losses
