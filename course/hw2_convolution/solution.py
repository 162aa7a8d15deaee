"""Assignment 2, convolution and pooling by hand. Write the functions below; the handout says what each one returns.

Besides the standard library, you may import only NumPy. Never modify the inputs; return float32 for float32 inputs.
"""

import numpy as np
from variant import average as AVERAGE  # "window": divided by size^2; "inside": by the number of pixels in the image
from variant import kernel as KERNEL  # "correlation": W[a, c] multiplies pixel s i + a; "convolution": W flipped
from variant import layout as LAYOUT  # "NHWC": images (N, H, W, C); "NCHW": (N, C, H, W); or another order


# BEGIN SOLUTION
def last(x):
    """Return the images in the order NHWC; `first` is the inverse."""
    return x.transpose([LAYOUT.index(axis) for axis in "NHWC"])


def first(x):
    return np.ascontiguousarray(x.transpose(["NHWC".index(axis) for axis in LAYOUT]))


def padded(x, pad, value=0):
    return np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=value)


def cut(x, pad):
    return x[:, pad : x.shape[1] - pad, pad : x.shape[2] - pad]


def windows(x, size, stride):
    """View padded images (N, H, W, C) as (N, H', W', C, *size), without copying."""
    return np.lib.stride_tricks.sliding_window_view(x, size, axis=(1, 2))[:, ::stride, ::stride]


def placed(u, a, c, stride):
    """Return two slices: the rows and the columns of the pixels that entry (a, c) of the windows reads."""
    return slice(a, a + stride * (u.shape[1] - 1) + 1, stride), slice(c, c + stride * (u.shape[2] - 1) + 1, stride)


# END SOLUTION
def conv(x, W, b, stride, pad):
    """Map images x, with W (k, m, C, n) and b (n,), to images with n channels.  Return them with a cache."""
    # BEGIN SOLUTION
    V = W if KERNEL == "correlation" else W[::-1, ::-1]
    X = padded(last(x), pad)
    y = np.tensordot(windows(X, V.shape[:2], stride), V, axes=([4, 5, 3], [0, 1, 2])) + b
    return first(y), (X, V, stride, pad)
    # END SOLUTION


def conv_backward(u, cache):
    """Map u, of the shape of y, to dL/dx, dL/dW and dL/db."""
    # BEGIN SOLUTION
    X, V, stride, pad = cache
    u = last(u)
    dX, dV = np.zeros_like(X), np.zeros_like(V)
    for a, c in np.ndindex(V.shape[:2]):
        rows, columns = placed(u, a, c, stride)
        dX[:, rows, columns] += u @ V[a, c].T
        dV[a, c] = np.tensordot(X[:, rows, columns], u, axes=([0, 1, 2], [0, 1, 2]))
    dW = dV if KERNEL == "correlation" else dV[::-1, ::-1].copy()
    return first(cut(dX, pad)), dW, u.sum(axis=(0, 1, 2))
    # END SOLUTION


def max_pool(x, size, stride, pad):
    """Return the largest entry of each size x size window of each channel, and a cache.  Padding is never chosen."""
    # BEGIN SOLUTION
    X = padded(last(x), pad, -np.inf)
    w = windows(X, (size, size), stride)
    w = w.reshape(*w.shape[:4], size * size)
    return first(w.max(axis=-1)), (X, w.argmax(axis=-1), size, stride, pad)
    # END SOLUTION


def max_pool_backward(u, cache):
    """Map u, of the shape of y, to dL/dx; of tied entries, only the first in reading order receives u."""
    # BEGIN SOLUTION
    X, which, size, stride, pad = cache
    u, dX = last(u), np.zeros_like(X)
    for k in range(size * size):
        dX[(slice(None), *placed(u, k // size, k % size, stride))] += u * (which == k)
    return first(cut(dX, pad))
    # END SOLUTION


def avg_pool(x, size, stride, pad):
    """Return the mean of each window, with the divisor that your handout specifies, and a cache."""
    # BEGIN SOLUTION
    X = last(x)
    inside = windows(padded(np.ones_like(X), pad), (size, size), stride).sum(axis=(4, 5))
    count = inside if AVERAGE == "inside" else np.full_like(inside, size * size)
    y = windows(padded(X, pad), (size, size), stride).sum(axis=(4, 5)) / count
    return first(y), (X.shape, count, size, stride, pad)
    # END SOLUTION


def avg_pool_backward(u, cache):
    """Map u, of the shape of y, to dL/dx."""
    # BEGIN SOLUTION
    shape, count, size, stride, pad = cache
    u = last(u) / count
    dX = padded(np.zeros(shape, u.dtype), pad)
    for a, c in np.ndindex(size, size):
        dX[(slice(None), *placed(u, a, c, stride))] += u
    return first(cut(dX, pad))
    # END SOLUTION


# ------------------------------------------------------------------------------------------------ the experiment


def channel_noise(x, widths, draws, seed):
    """Return relative distances between the pixel covariances of two random layers, for K widths: (K, draws)."""
    # BEGIN SOLUTION
    C = last(x).shape[3]
    found = []
    for n in widths:
        for s in range(draws):
            rng, Q = np.random.default_rng([seed, n, s]), []
            for _ in range(2):
                h, _ = conv(x, rng.standard_normal((3, 3, C, n)), np.zeros(n), 1, 1)
                a = np.maximum(last(h).reshape(-1, n), 0)
                Q.append(a @ a.T / n)
            found.append(2 * np.linalg.norm(Q[0] - Q[1]) / np.linalg.norm(Q[0] + Q[1]))
    return np.reshape(found, (len(widths), draws))
    # END SOLUTION
