"""Assignment 1, backpropagation by hand. Write the functions below; the handout says what each one returns.

Besides the standard library, you may import only NumPy. Never modify the inputs; return float32 for float32 inputs.
"""

import numpy as np
from variant import activation as ACTIVATION  # "relu", "tanh" or "softplus"
from variant import gain as GAIN  # multiplies the activation
from variant import loss as LOSS  # "mean" or "sum" over the examples
from variant import smoothing as SMOOTHING  # the part of the targets that all classes share
from variant import weights as WEIGHTS  # "in_out": y = x W + b;  "out_in": y = x W' + b


def dense(x, W, b):
    """Map x (N, d), with W in the layout of your handout and b (n,), to y (N, n).  Return y and a cache."""
    # BEGIN SOLUTION
    y = x @ (W if WEIGHTS == "in_out" else W.T) + b
    return y, (x, W)
    # END SOLUTION


def dense_backward(u, cache):
    """Map u = dL/dy (N, n) to dL/dx, dL/dW and dL/db, which have the shapes of x, W and b."""
    # BEGIN SOLUTION
    x, W = cache
    if WEIGHTS == "in_out":
        return u @ W.T, x.T @ u, u.sum(axis=0)
    return u @ W, u.T @ x, u.sum(axis=0)
    # END SOLUTION


def activate(z):
    """Map z (N, n) to gain phi(z), returned with a cache."""
    # BEGIN SOLUTION
    if ACTIVATION == "relu":
        return GAIN * np.maximum(z, 0), z
    if ACTIVATION == "tanh":
        return GAIN * np.tanh(z), z
    return GAIN * np.logaddexp(z, np.zeros_like(z)), z
    # END SOLUTION


def activate_backward(u, cache):
    """Map u (N, n) to dL/dz (N, n)."""
    # BEGIN SOLUTION
    z, u = cache, GAIN * u
    if ACTIVATION == "relu":
        return u * (z > 0)
    if ACTIVATION == "tanh":
        return u * (1 - np.tanh(z) ** 2)
    e = np.exp(-np.abs(z))
    return u * np.where(z > 0, 1 / (1 + e), e / (1 + e))
    # END SOLUTION


def log_softmax(z):
    """Map z (N, C) to the log softmax of each row, (N, C)."""
    # BEGIN SOLUTION
    z = z - z.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    # END SOLUTION


# BEGIN SOLUTION
def targets(z, labels):
    """Return the targets (N, C): smoothing / C, plus 1 - smoothing at the label."""
    t = np.full_like(z, SMOOTHING / z.shape[1])
    t[np.arange(len(z)), labels] += 1 - SMOOTHING
    return t


# END SOLUTION
def cross_entropy(z, labels):
    """Map logits z (N, C) and labels (N,) in 0..C-1 to the loss, a NumPy scalar of z's dtype, and a cache."""
    # BEGIN SOLUTION
    each = -(targets(z, labels) * log_softmax(z)).sum(axis=1)
    return each.mean() if LOSS == "mean" else each.sum(), (z, labels)
    # END SOLUTION


def cross_entropy_backward(u, cache):
    """Map u = dL/dloss, a number, to dL/dz (N, C)."""
    # BEGIN SOLUTION
    z, labels = cache
    scale = u / len(z) if LOSS == "mean" else u
    return (np.exp(log_softmax(z)) - targets(z, labels)) * np.asarray(scale, dtype=z.dtype)
    # END SOLUTION


def network(x, params):
    """Map x (N, d) and params [W1, b1, ...] by dense, activate, ..., dense to logits (N, C), returned with a cache."""
    # BEGIN SOLUTION
    caches = []
    for i in range(0, len(params), 2):
        if i:
            x, cache = activate(x)
            caches.append(cache)
        x, cache = dense(x, params[i], params[i + 1])
        caches.append(cache)
    return x, caches
    # END SOLUTION


def gradients(x, labels, params):
    """Return the loss and [dW1, db1, dW2, db2, ...]."""
    # BEGIN SOLUTION
    z, caches = network(x, params)
    loss, cache = cross_entropy(z, labels)
    u, found = cross_entropy_backward(np.ones((), z.dtype), cache), []
    for i, cache in reversed(list(enumerate(caches))):
        if i % 2:
            u = activate_backward(u, cache)
        else:
            u, dW, db = dense_backward(u, cache)
            found = [dW, db, *found]
    return loss, found
    # END SOLUTION


def gradients_in_parts(x, labels, params, size):
    """Return the same as `gradients`, using `size` examples at a time (fewer in the last part)."""
    # BEGIN SOLUTION
    loss, total = 0, [np.zeros_like(p) for p in params]
    for i in range(0, len(x), size):
        part = slice(i, i + size)
        share = len(x[part]) / len(x) if LOSS == "mean" else 1.0
        loss_part, found = gradients(x[part], labels[part], params)
        loss = loss + loss_part * loss_part.dtype.type(share)
        total = [t + g * g.dtype.type(share) for t, g in zip(total, found)]
    return loss, total
    # END SOLUTION


def twice(x, W, b):
    """Return y and a cache for x (N, n), W (n, n) and b (n,): y = dense(activate(dense(x))) with the same W and b."""
    # BEGIN SOLUTION
    z, first = dense(x, W, b)
    a, middle = activate(z)
    y, last = dense(a, W, b)
    return y, (first, middle, last)
    # END SOLUTION


def twice_backward(u, cache):
    """Map u (N, n) to dL/dx, dL/dW and dL/db."""
    # BEGIN SOLUTION
    first, middle, last = cache
    da, dW2, db2 = dense_backward(u, last)
    dx, dW1, db1 = dense_backward(activate_backward(da, middle), first)
    return dx, dW1 + dW2, db1 + db2
    # END SOLUTION


def sgd(p, g, v, lr, momentum):
    """Return the updated p and v, given the gradient g: v' = momentum v + g, p' = p - lr v'."""
    # BEGIN SOLUTION
    v = momentum * v + g
    return p - lr * v, v
    # END SOLUTION


def train(x, labels, params, lr, momentum, steps):
    """Take full-batch steps from zero velocities; return the parameters and the losses before each step, (steps,)."""
    # BEGIN SOLUTION
    velocity, losses = [np.zeros_like(p) for p in params], []
    for _ in range(steps):
        loss, grads = gradients(x, labels, params)
        losses.append(loss)
        moved = [sgd(p, g, v, lr, momentum) for p, g, v in zip(params, grads, velocity)]
        params, velocity = [p for p, _ in moved], [v for _, v in moved]
    return params, np.array(losses)
    # END SOLUTION


# ------------------------------------------------------------------------------------------------ the experiment


def batch_noise(x, labels, params, batches, draws, seed):
    """Return |g_B - g| / |g|, (K, draws), for K batch sizes B; the mean loss of a batch has the gradient g_B."""

    # BEGIN SOLUTION
    def vector(at):
        grads = gradients(x[at], labels[at], params)[1]
        return np.concatenate([g.ravel() for g in grads]) / (len(at) if LOSS == "sum" else 1)

    whole, found = vector(np.arange(len(x))), []
    for B in batches:
        for s in range(draws):
            at = np.random.default_rng([seed, B, s]).integers(len(x), size=B)
            found.append(np.linalg.norm(vector(at) - whole) / np.linalg.norm(whole))
    return np.reshape(found, (len(batches), draws))
    # END SOLUTION
