# refused by: conv with stride and padding, conv backward with stride and padding, measurement


def conv(x, W, b, stride, pad):
    V = W if KERNEL == "correlation" else W[::-1, ::-1]
    X = np.pad(last(x), ((0, 0), (2 * pad, 0), (2 * pad, 0), (0, 0)))
    y = np.tensordot(windows(X, V.shape[:2], stride), V, axes=([4, 5, 3], [0, 1, 2])) + b
    return first(y), (X, V, stride, pad)


def conv_backward(u, cache):
    X, V, stride, pad = cache
    u = last(u)
    dX, dV = np.zeros_like(X), np.zeros_like(V)
    for a, c in np.ndindex(V.shape[:2]):
        rows, columns = placed(u, a, c, stride)
        dX[:, rows, columns] += u @ V[a, c].T
        dV[a, c] = np.tensordot(X[:, rows, columns], u, axes=([0, 1, 2], [0, 1, 2]))
    dW = dV if KERNEL == "correlation" else dV[::-1, ::-1].copy()
    return first(dX[:, 2 * pad :, 2 * pad :]), dW, u.sum(axis=(0, 1, 2))
