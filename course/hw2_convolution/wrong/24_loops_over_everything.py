# refused by: conv backward, conv backward with stride and padding, speed
# isolated


def conv(x, W, b, stride, pad):
    V = W if KERNEL == "correlation" else W[::-1, ::-1]
    X = padded(last(x), pad)
    k, m, C, n = V.shape
    H, L = (X.shape[1] - k) // stride + 1, (X.shape[2] - m) // stride + 1
    y = np.zeros((len(X), H, L, n), X.dtype)
    for e, i, j, o in np.ndindex(y.shape):
        y[e, i, j, o] = b[o]
        for p, q, c in np.ndindex(k, m, C):
            y[e, i, j, o] += X[e, stride * i + p, stride * j + q, c] * V[p, q, c, o]
    return first(y), (X, V, stride, pad)
