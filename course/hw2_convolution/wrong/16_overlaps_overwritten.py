# refused by: max pool backward


def max_pool_backward(u, cache):
    X, which, size, stride, pad = cache
    u, dX = last(u), np.zeros_like(X)
    for at in np.ndindex(which.shape):
        n, i, j, channel = at
        dX[n, stride * i + which[at] // size, stride * j + which[at] % size, channel] = u[at]
    return first(cut(dX, pad))
