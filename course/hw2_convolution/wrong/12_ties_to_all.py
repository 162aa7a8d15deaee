# refused by: ties


_max_pool = max_pool


def max_pool(x, size, stride, pad):
    y, (X, _, *rest) = _max_pool(x, size, stride, pad)
    return y, (X, y, *rest)


def max_pool_backward(u, cache):
    X, y, size, stride, pad = cache
    u, y, dX = last(u), last(y), np.zeros_like(X)
    for a, c in np.ndindex(size, size):
        here = (slice(None), *placed(u, a, c, stride))
        dX[here] += u * (X[here] == y)
    return first(cut(dX, pad))
