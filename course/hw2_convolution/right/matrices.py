"""Gather windows by pixel index. Convolutions become matrix products, and gradients are added at the same indices."""

import numpy as np
import variant

CHANNELS = 3 if variant.layout == "NHWC" else 1


def gathered(x, k, m, stride, pad, value):
    """Return windows (N, H', W', C, k m), pixel indices (H', W', k m) into the padded image, and its shape."""
    X = np.moveaxis(x, CHANNELS, 3)
    X = np.pad(X, [(0, 0), (pad, pad), (pad, pad), (0, 0)], constant_values=value)
    H, L = X.shape[1:3]
    rows = stride * np.arange((H - k) // stride + 1)[:, None, None, None] + np.arange(k)[:, None]
    columns = stride * np.arange((L - m) // stride + 1)[:, None, None] + np.arange(m)
    at = (rows * L + columns).reshape(rows.shape[0], columns.shape[0], k * m)
    flat = X.reshape(len(X), H * L, -1)
    return np.moveaxis(flat[:, at], 4, 3), at, X.shape


def scattered(values, at, shape, pad):
    """Apply the adjoint of `gathered`: add values (N, H', W', C, k m) to their pixels, and crop the padding."""
    N, H, L, C = shape
    total = np.zeros((H * L, N, C), values.dtype)
    np.add.at(total, at, values.transpose(1, 2, 4, 0, 3))
    image = total.transpose(1, 0, 2).reshape(shape)[:, pad : H - pad, pad : L - pad]
    return np.moveaxis(image, 3, CHANNELS)


def matrix(W):
    """Reshape W, flipped if the variant requires it, to (C k m, n)."""
    W = W[::-1, ::-1] if variant.kernel == "convolution" else W
    return W.transpose(2, 0, 1, 3).reshape(-1, W.shape[3])


def conv(x, W, b, stride, pad):
    w, at, shape = gathered(x, W.shape[0], W.shape[1], stride, pad, 0)
    w = w.reshape(*w.shape[:3], -1)
    return np.moveaxis(w @ matrix(W) + b, 3, CHANNELS), (w, at, shape, W, pad)


def conv_backward(u, cache):
    w, at, shape, W, pad = cache
    u = np.moveaxis(u, CHANNELS, 3)
    dV = (w.reshape(-1, w.shape[-1]).T @ u.reshape(-1, u.shape[-1])).reshape(W.shape[2], *W.shape[:2], W.shape[3])
    dW = dV.transpose(1, 2, 0, 3)
    dw = (u @ matrix(W).T).reshape(*u.shape[:3], W.shape[2], -1)
    return (
        scattered(dw, at, shape, pad),
        dW[::-1, ::-1] if variant.kernel == "convolution" else dW,
        u.reshape(-1, u.shape[-1]).sum(axis=0),
    )


def max_pool(x, size, stride, pad):
    w, at, shape = gathered(x, size, size, stride, pad, -np.inf)
    return np.moveaxis(w.max(axis=4), 3, CHANNELS), (w, at, shape, pad)


def max_pool_backward(u, cache):
    w, at, shape, pad = cache
    chosen = np.arange(w.shape[4]) == w.argmax(axis=4)[..., None]
    return scattered(np.moveaxis(u, CHANNELS, 3)[..., None] * chosen, at, shape, pad)


def avg_pool(x, size, stride, pad):
    w, at, shape = gathered(x, size, size, stride, pad, 0)
    ones, _, _ = gathered(np.ones_like(x), size, size, stride, pad, 0)
    weight = ones / (ones.sum(axis=4, keepdims=True) if variant.average == "inside" else ones.dtype.type(size**2))
    return np.moveaxis((w * weight).sum(axis=4), 3, CHANNELS), (weight, at, shape, pad)


def avg_pool_backward(u, cache):
    weight, at, shape, pad = cache
    return scattered(np.moveaxis(u, CHANNELS, 3)[..., None] * weight, at, shape, pad)
