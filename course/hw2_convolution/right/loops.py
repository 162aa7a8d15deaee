"""Compute one output pixel at a time, mostly for all examples and channels at once."""

import numpy as np
from variant import average, kernel, layout


def out_size(size, k, stride, pad):
    return (size + 2 * pad - k) // stride + 1


def to_last(x):
    return np.moveaxis(x, 1, -1) if layout == "NCHW" else x


def from_last(x):
    return np.moveaxis(x, -1, 1) if layout == "NCHW" else x


def pixels(H, L, size, stride, pad):
    """Yield (i, j, rows, columns, top, left): output pixel, image rows and columns in its window, window corner."""
    for i in range(out_size(H, size[0], stride, pad)):
        for j in range(out_size(L, size[1], stride, pad)):
            top, left = i * stride - pad, j * stride - pad
            yield (
                i,
                j,
                range(max(top, 0), min(top + size[0], H)),
                range(max(left, 0), min(left + size[1], L)),
                top,
                left,
            )


def part(W, rows, columns, top, left):
    """Return the entries of the kernel that multiply these pixels."""
    V = W[::-1, ::-1] if kernel == "convolution" else W
    return V[rows.start - top : rows.stop - top, columns.start - left : columns.stop - left]


def conv(x, W, b, stride, pad):
    X = to_last(x)
    N, H, L, _ = X.shape
    k = W.shape[:2]
    y = np.empty((N, out_size(H, k[0], stride, pad), out_size(L, k[1], stride, pad), W.shape[3]), x.dtype)
    for i, j, rows, columns, top, left in pixels(H, L, k, stride, pad):
        V = part(W, rows, columns, top, left)
        patch = X[:, rows.start : rows.stop, columns.start : columns.stop]
        y[:, i, j] = patch.reshape(N, -1) @ V.reshape(-1, V.shape[3]) + b if V.size else b
    return from_last(y), (x, W, stride, pad)


def conv_backward(u, cache):
    x, W, stride, pad = cache
    X, u = to_last(x), to_last(u)
    _, H, L, _ = X.shape
    dX, dW = np.zeros(X.shape, x.dtype), np.zeros_like(W)
    for i, j, rows, columns, top, left in pixels(H, L, W.shape[:2], stride, pad):
        V, dV = part(W, rows, columns, top, left), part(dW, rows, columns, top, left)
        here = (slice(None), slice(rows.start, rows.stop), slice(columns.start, columns.stop))
        dV += np.einsum("nabc,nk->abck", X[here], u[:, i, j])
        dX[here] += np.einsum("nk,abck->nabc", u[:, i, j], V)
    return from_last(dX), dW, u.sum(axis=0).sum(axis=0).sum(axis=0)


def max_pool(x, size, stride, pad):
    X = to_last(x)
    N, H, L, C = X.shape
    y = np.empty((N, out_size(H, size, stride, pad), out_size(L, size, stride, pad), C), x.dtype)
    for i, j, rows, columns, *_ in pixels(H, L, (size, size), stride, pad):
        y[:, i, j] = X[:, rows.start : rows.stop, columns.start : columns.stop].max(axis=(1, 2))
    return from_last(y), (x, size, stride, pad)


def max_pool_backward(u, cache):
    x, size, stride, pad = cache
    X, u = to_last(x), to_last(u)
    N, H, L, C = X.shape
    dX = np.zeros(X.shape, x.dtype)
    for i, j, rows, columns, *_ in pixels(H, L, (size, size), stride, pad):
        for n in range(N):
            for c in range(C):
                best = None
                for a in rows:
                    for e in columns:
                        if best is None or X[n, a, e, c] > X[n, best[0], best[1], c]:
                            best = a, e
                dX[n, best[0], best[1], c] += u[n, i, j, c]
    return from_last(dX)


def divisor(size, rows, columns):
    return size * size if average == "window" else len(rows) * len(columns)


def avg_pool(x, size, stride, pad):
    X = to_last(x)
    N, H, L, C = X.shape
    y = np.empty((N, out_size(H, size, stride, pad), out_size(L, size, stride, pad), C), x.dtype)
    for i, j, rows, columns, *_ in pixels(H, L, (size, size), stride, pad):
        patch = X[:, rows.start : rows.stop, columns.start : columns.stop]
        y[:, i, j] = patch.sum(axis=(1, 2)) / divisor(size, rows, columns)
    return from_last(y), (x, size, stride, pad)


def avg_pool_backward(u, cache):
    x, size, stride, pad = cache
    dX, u = np.zeros(to_last(x).shape, x.dtype), to_last(u)
    for i, j, rows, columns, *_ in pixels(*dX.shape[1:3], (size, size), stride, pad):
        share = u[:, i, j] / divisor(size, rows, columns)
        dX[:, rows.start : rows.stop, columns.start : columns.stop] += share[:, None, None, :]
    return from_last(dX)
