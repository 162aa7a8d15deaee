# refused by: ties


def max_pool_backward(u, cache):
    X, _, size, stride, pad = cache
    w = windows(X, (size, size), stride)
    equal = w == w.max(axis=(4, 5), keepdims=True)
    share = last(u)[..., None, None] * equal / equal.sum(axis=(4, 5), keepdims=True)
    dX = np.zeros_like(X)
    for a, c in np.ndindex(size, size):
        dX[(slice(None), *placed(share, a, c, stride))] += share[..., a, c].astype(X.dtype)
    return first(cut(dX, pad))
