"""The right answers, in plain float64 NumPy: the formulas of the theory and of backpropagation, written out once more.

Nothing here is fast, nothing is shared with the library, and every side of a row is held against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import pi, sqrt
from typing import Any

import numpy as np

Array = Any


def infinite_kernels(x: Array, depth: int, activation: str, w_std: float, b_std: float) -> tuple[Array, Array]:
    """(NNGP, NTK) of `depth` hidden layers and a linear output, for x : (N, d); Lee et al. 2019, supplement.

    K <- w_std^2 T(K) + b_std^2,   Theta <- K + w_std^2 Theta Tdot(K).
    """
    x = x.astype(np.float64)
    k = w_std**2 * (x @ x.T) / x.shape[1] + b_std**2
    theta = k.copy()
    dual = {"relu": _relu, "erf": _erf}[activation]
    for _ in range(depth):
        t, t_dot = dual(k)
        k = w_std**2 * t + b_std**2
        theta = k + w_std**2 * theta * t_dot
    return k, theta


def _relu(k: Array) -> tuple[Array, Array]:
    s = np.sqrt(np.diag(k))
    angle = np.arccos(np.clip(k / (s[:, None] * s), -1, 1))
    np.fill_diagonal(angle, 0.0)
    return s[:, None] * s * (np.sin(angle) + (pi - angle) * np.cos(angle)) / (2 * pi), (pi - angle) / (2 * pi)


def _erf(k: Array) -> tuple[Array, Array]:
    a = 1 + 2 * np.diag(k)
    product = a[:, None] * a
    return 2 / pi * np.arcsin(2 * k / np.sqrt(product)), 4 / pi / np.sqrt(product - 4 * k**2)


def infinite_cnn_kernels(x: Array, depth: int, pool: bool, w_std: float, b_std: float) -> tuple[Array, Array]:
    """(NNGP, NTK) of `depth` 3 x 3 convolutions with ReLU, zeros outside, then the mean over all pairs of pixels
    (`pool`) or over equal pixels, then a linear output; x : (N, H, W, C).  Novak et al. 2019; Arora et al. 2019.

    The covariances of all pairs of pixels of two images at a time, (H, W, H, W); of equal pixels alone, (H, W).
    """
    x = x.astype(np.float64)
    N, H, W, C = x.shape
    q = [np.sum(x * x, axis=3) / C]  # variances before each activation, (N, H, W)
    for layer in range(depth):
        q.append(w_std**2 * _mean_3x3(q[-1] * (0.5 if layer else 1.0)) + b_std**2)
    k, theta = np.empty((N, N)), np.empty((N, N))
    for i in range(N):
        for j in range(i, N):
            cov = np.einsum("hwc,abc->hwab", x[i], x[j]) / C if pool else np.sum(x[i] * x[j], axis=2) / C
            tangent = np.zeros_like(cov)
            for layer in range(depth):
                cov = w_std**2 * _mean_3x3(cov, pool) + b_std**2
                tangent = w_std**2 * _mean_3x3(tangent, pool) + cov
                s, s2 = np.sqrt(q[layer + 1][i]), np.sqrt(q[layer + 1][j])
                norm = s[:, :, None, None] * s2 if pool else s * s2
                cos = np.clip(cov / norm, -1, 1)
                if i == j:  # exactly 1 there
                    cos[np.ogrid[:H, :W] * 2 if pool else ...] = 1
                angle = np.arccos(cos)
                cov = norm * (np.sin(angle) + (pi - angle) * cos) / (2 * pi)
                tangent *= (pi - angle) / (2 * pi)
            k[i, j] = k[j, i] = w_std**2 * cov.mean() + b_std**2
            theta[i, j] = theta[j, i] = w_std**2 * tangent.mean() + k[i, j]
    return k, theta


def _mean_3x3(a: Array, joint: bool = False) -> Array:
    """Mean over 3 x 3 windows of the last two axes, zeros outside; joint: over windows of both pairs of axes as one."""
    H, W = a.shape[-2:]
    if not joint:
        p = np.pad(a, [(0, 0)] * (a.ndim - 2) + [(1, 1), (1, 1)])
        return sum(p[..., s : s + H, t : t + W] for s in range(3) for t in range(3)) / 9
    p = np.pad(a, 1)
    return sum(p[s : s + H, t : t + W, s : s + H, t : t + W] for s in range(3) for t in range(3)) / 9


Layers = Sequence[tuple[Array, Array]]
"""(W, b) of each layer; W : ([E], n, m), b : ([E], 1, m)."""


def layers(a: Mapping[str, Array]) -> list[tuple[Array, Array]]:
    """The tensors W0, b0, W1, b1, ... of a row's inputs, layer by layer."""
    return [(a[f"W{i}"], a[f"b{i}"]) for i in range(sum(name.startswith("W") for name in a))]


def forward(weights: Layers, x: Array) -> tuple[Array, list[Array]]:
    """z = h W + b, h = relu(z): the outputs, and the inputs h of each layer."""
    hs, h = [], x
    for i, (w, b) in enumerate(weights):
        hs.append(h)
        z = h @ w + b
        h = np.maximum(z, 0) if i + 1 < len(weights) else z
    return h, hs


def train(a: Mapping[str, Array], loss: str, lr: float, momentum: float, steps: int) -> Array:
    """f after `steps` of full-batch descent, less f before: f_T - f_0 : ([E], N, C).

    v <- momentum v + gradient, theta <- theta - lr v; loss 1/(2N) sum |f - y|^2 ("mse"), or the mean cross-entropy.
    """
    x, y = a["x"].astype(np.float64), a["y"].astype(np.float64)
    weights = [(w.astype(np.float64), b.astype(np.float64)) for w, b in layers(a)]
    speed = [(np.zeros_like(w), np.zeros_like(b)) for w, b in weights]
    start, _ = forward(weights, x)
    for _ in range(steps):
        f, hs = forward(weights, x)
        if loss == "mse":
            delta = (f - y) / x.shape[0]
        else:
            p = np.exp(f - f.max(axis=-1, keepdims=True))
            delta = (p / p.sum(axis=-1, keepdims=True) - y) / x.shape[0]
        for i in reversed(range(len(weights))):
            (w, b), (vw, vb) = weights[i], speed[i]
            vw[...] = momentum * vw + np.swapaxes(hs[i], -1, -2) @ delta
            vb[...] = momentum * vb + delta.sum(axis=-2, keepdims=True)
            if i:
                delta = delta @ np.swapaxes(w, -1, -2) * (hs[i] > 0)
            w -= lr * vw
            b -= lr * vb
    return forward(weights, x)[0] - start


def empirical_ntk(a: Mapping[str, Array], w_std: float, b_std: float) -> Array:
    """J J' : (N, N, C, C) of a network with z = w_std / sqrt(n) h W + b_std b.

    sum over layers of (delta delta') (w_std^2/n h h' + b_std^2), delta = df/dz from the layer behind.
    """
    x = a["x"].astype(np.float64)
    weights = [(w_std / sqrt(w.shape[0]) * w.astype(np.float64), b_std * b.astype(np.float64)) for w, b in layers(a)]
    f, hs = forward(weights, x)
    N, C = f.shape
    delta, total = np.broadcast_to(np.eye(C), (N, C, C)), np.zeros((N, N, C, C))
    for i in reversed(range(len(weights))):
        rows = delta.reshape(N * C, -1)
        pairs = (rows @ rows.T).reshape(N, C, N, C).transpose(0, 2, 1, 3)
        total += pairs * (w_std**2 / hs[i].shape[1] * hs[i] @ hs[i].T + b_std**2)[:, :, None, None]
        if i:
            delta = delta @ weights[i][0].T * (hs[i] > 0)[:, None, :]
    return total


# ------------------------------------------------------------------------------------------- LeNet-5


def lenet_forward(weights: Layers, x: Array) -> tuple[Array, list[Any]]:
    """conv 5x5 (padding 2) - ReLU - max 2x2 - conv 5x5 - ReLU - max 2x2 - three linear layers with ReLU between.

    W : (5, 5, C, n) and (n, m).  Returns the outputs, and what each layer read, with the places of the maxima.
    """
    saved: list[Any] = []
    h = np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)))
    for w, b in weights[:2]:
        z = np.maximum(_convolve(h, w) + b.reshape(-1), 0)
        blocks = _blocks(z)
        place = blocks.argmax(axis=-1)
        saved.append((h, z, place))
        h = np.take_along_axis(blocks, place[..., None], axis=-1)[..., 0]
    shape, h = h.shape, h.reshape(len(h), -1)
    for i, (w, b) in enumerate(weights[2:]):
        saved.append((h, shape))
        z = h @ w + b
        h = np.maximum(z, 0) if i < 2 else z
    return h, saved


def lenet_backward(weights: Layers, saved: list[Any], delta: Array) -> list[tuple[Array, Array]]:
    """(dW, db) of each layer for the cotangent delta of the outputs."""
    gradients: list[Any] = [None] * 5
    for i in (4, 3, 2):
        h, shape = saved[i]
        gradients[i] = (h.T @ delta, delta.sum(axis=0, keepdims=True))
        delta = delta @ weights[i][0].T
        delta = delta * (h > 0) if i > 2 else delta.reshape(shape)
    for i in (1, 0):
        h, z, place = saved[i]
        blocks = np.zeros((*place.shape, 4))
        np.put_along_axis(blocks, place[..., None], delta[..., None], axis=-1)
        dz = _unblock(blocks) * (z > 0)
        w, (H, W) = weights[i][0], dz.shape[1:3]
        dw, dh = np.zeros_like(w), np.zeros_like(h)
        for a in range(5):
            for b in range(5):
                dw[a, b] = np.tensordot(h[:, a : a + H, b : b + W], dz, axes=((0, 1, 2), (0, 1, 2)))
                dh[:, a : a + H, b : b + W] += dz @ w[a, b].T
        gradients[i] = (dw, dz.sum(axis=(0, 1, 2)).reshape(1, -1))
        delta = dh
    return gradients


def _convolve(h: Array, w: Array) -> Array:
    """sum_ab h[:, p + a, q + b] w[a, b]."""
    H, W = h.shape[1] - 4, h.shape[2] - 4
    return sum(h[:, a : a + H, b : b + W] @ w[a, b] for a in range(5) for b in range(5))


def _blocks(z: Array) -> Array:
    """(N, H, W, n) as (N, H/2, W/2, n, 4)."""
    N, H, W, n = z.shape
    return z.reshape(N, H // 2, 2, W // 2, 2, n).transpose(0, 1, 3, 5, 2, 4).reshape(N, H // 2, W // 2, n, 4)


def _unblock(blocks: Array) -> Array:
    """The inverse of `_blocks`."""
    N, H, W, n, _ = blocks.shape
    return blocks.reshape(N, H, W, n, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(N, 2 * H, 2 * W, n)


def lenet_train(a: Mapping[str, Array], lr: float, momentum: float, steps: int) -> Array:
    """f after `steps` of full-batch descent on the mean cross-entropy, less f before : (N, C)."""
    x, y = a["x"].astype(np.float64), a["y"].astype(np.float64)
    weights = [(w.astype(np.float64), b.astype(np.float64)) for w, b in layers(a)]
    speed = [(np.zeros_like(w), np.zeros_like(b)) for w, b in weights]
    start, _ = lenet_forward(weights, x)
    for _ in range(steps):
        f, saved = lenet_forward(weights, x)
        p = np.exp(f - f.max(axis=-1, keepdims=True))
        delta = (p / p.sum(axis=-1, keepdims=True) - y) / x.shape[0]
        for (w, b), (vw, vb), (dw, db) in zip(weights, speed, lenet_backward(weights, saved, delta)):
            vw[...] = momentum * vw + dw
            vb[...] = momentum * vb + db
            w -= lr * vw
            b -= lr * vb
    return lenet_forward(weights, x)[0] - start


def lenet_ntk(a: Mapping[str, Array]) -> Array:
    """1/C sum_c J_c J_c' : (N, N), from the gradients of every output of every example."""
    x = a["x"].astype(np.float64)
    weights = [(w.astype(np.float64), b.astype(np.float64)) for w, b in layers(a)]
    N, C = x.shape[0], weights[-1][0].shape[1]
    total = np.zeros((N, N))
    for c in range(C):
        rows = []
        for n in range(N):
            _, saved = lenet_forward(weights, x[n : n + 1])
            gradients = lenet_backward(weights, saved, np.eye(C)[c : c + 1])
            rows.append(np.concatenate([g.ravel() for pair in gradients for g in pair]))
        J = np.stack(rows)
        total += J @ J.T
    return total / C
