# refused by: conv backward with stride and padding

_conv_backward = conv_backward


def conv_backward(u, cache):
    X, V, stride, pad = cache
    _, dW, db = _conv_backward(u, cache)
    u, dX = last(u), np.zeros_like(X)
    for a, c in np.ndindex(V.shape[:2]):
        dX[:, a : a + u.shape[1], c : c + u.shape[2]] += u @ V[a, c].T
    return first(cut(dX, pad)), dW, db
