"""Express sums over the image as einsums with 0-1 arrays, one for the rows and one for the columns.

S[i, h, a] = 1 if output row i reads image row h through entry a of the window: h = stride i + a - pad.
"""

import numpy as np
from variant import average, kernel, layout

X_, Y_, U_ = ("nhwc", "nijk", "nijc") if layout == "NHWC" else ("nchw", "nkij", "ncij")


def selection(H, k, stride, pad, dtype):
    rows = (H + 2 * pad - k) // stride + 1
    i, h, a = np.ogrid[:rows, :H, :k]
    return (h == stride * i + a - pad).astype(dtype)


def both(x, k, m, stride, pad):
    H, L = x.shape[1:3] if layout == "NHWC" else x.shape[2:4]
    return selection(H, k, stride, pad, x.dtype), selection(L, m, stride, pad, x.dtype)


def read(S, T, x):
    """Return the windows (N, i, j, a, b, C)."""
    rows = np.einsum(f"iha,{X_}->niawc", S, x, optimize=True)
    return np.einsum("jwb,niawc->nijabc", T, rows, optimize=True)


def write(S, T, w):
    """Apply the adjoint of `read`: add the entries of windows (N, i, j, a, b, C) to the pixels that they came from."""
    columns = np.einsum("jwb,nijabc->niawc", T, w, optimize=True)
    return np.einsum(f"iha,niawc->{X_}", S, columns, optimize=True)


def conv(x, W, b, stride, pad):
    V = W[::-1, ::-1] if kernel == "convolution" else W
    S, T = both(x, V.shape[0], V.shape[1], stride, pad)
    w = read(S, T, x)
    y = np.einsum(f"nijabc,abck->{Y_}", w, V, optimize=True)
    return y + (b if layout == "NHWC" else b[:, None, None]), (w, V, S, T)


def conv_backward(u, cache):
    w, V, S, T = cache
    dw = np.einsum(f"{Y_},abck->nijabc", u, V, optimize=True)
    dV = np.einsum(f"{Y_},nijabc->abck", u, w, optimize=True)
    return write(S, T, dw), dV[::-1, ::-1] if kernel == "convolution" else dV, np.einsum(f"{Y_}->k", u)


def max_pool(x, size, stride, pad):
    S, T = both(x, size, size, stride, pad)
    inside = np.einsum("ia,jb->ijab", S.sum(axis=1), T.sum(axis=1))[..., None] > 0
    w = np.where(inside, read(S, T, x), x.dtype.type(-np.inf))
    w = w.reshape(*w.shape[:3], size * size, -1)
    best = (np.arange(size * size)[:, None] == w.argmax(axis=3)[:, :, :, None]).astype(x.dtype)
    best = best.reshape(*w.shape[:3], size, size, -1)
    return np.einsum(f"nijc->{U_}", w.max(axis=3)), (best, S, T)


def max_pool_backward(u, cache):
    best, S, T = cache
    return write(S, T, np.einsum(f"nijabc,{U_}->nijabc", best, u))


def count(S, T, size):
    inside = np.einsum("ia,jb->ij", S.sum(axis=1), T.sum(axis=1))
    c = inside if average == "inside" else np.full_like(inside, size * size)
    return c[:, :, None] if layout == "NHWC" else c


def avg_pool(x, size, stride, pad):
    S, T = both(x, size, size, stride, pad)
    return np.einsum(f"nijabc->{U_}", read(S, T, x)) / count(S, T, size), (S, T, size)


def avg_pool_backward(u, cache):
    S, T, size = cache
    share = np.einsum(f"{U_}->nijc", u / count(S, T, size))[:, :, :, None, None, :]
    return write(S, T, np.broadcast_to(share, (*share.shape[:3], size, size, share.shape[-1])))
