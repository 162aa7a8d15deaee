# refused by: conv backward, conv backward with stride and padding


def conv_backward(u, cache):
    X, V, stride, pad = cache
    u = last(u)
    dX, dV = np.zeros_like(X), np.zeros_like(V)
    for a, c in np.ndindex(V.shape[:2]):
        rows, columns = placed(u, a, c, stride)
        dX[:, rows, columns] = u @ V[a, c].T
        dV[a, c] = np.tensordot(X[:, rows, columns], u, axes=([0, 1, 2], [0, 1, 2]))
    dW = dV if KERNEL == "correlation" else dV[::-1, ::-1].copy()
    return first(cut(dX, pad)), dW, u.sum(axis=(0, 1, 2))
