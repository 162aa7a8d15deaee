# refused by: conv backward with stride and padding


def cut(x, pad):  # the padding is cropped only at the end
    return x[:, : x.shape[1] - 2 * pad, : x.shape[2] - 2 * pad]


def max_pool_backward(u, cache):
    X, which, size, stride, pad = cache
    u, dX = last(u), np.zeros_like(X)
    for k in range(size * size):
        dX[(slice(None), *placed(u, k // size, k % size, stride))] += u * (which == k)
    return first(dX[:, pad : X.shape[1] - pad, pad : X.shape[2] - pad])


def avg_pool_backward(u, cache):
    shape, count, size, stride, pad = cache
    u = last(u) / count
    dX = padded(np.zeros(shape, u.dtype), pad)
    for a, c in np.ndindex(size, size):
        dX[(slice(None), *placed(u, a, c, stride))] += u
    return first(dX[:, pad : dX.shape[1] - pad, pad : dX.shape[2] - pad])
