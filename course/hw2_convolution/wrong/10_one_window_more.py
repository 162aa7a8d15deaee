# refused by: conv with stride and padding, conv backward with stride and padding


def conv(x, W, b, stride, pad):  # rounds the number of windows up, and pads with zeros
    V = W if KERNEL == "correlation" else W[::-1, ::-1]
    X = padded(last(x), pad)
    more = [(-(X.shape[1 + i] - V.shape[i])) % stride for i in (0, 1)]
    X = np.pad(X, ((0, 0), (0, more[0]), (0, more[1]), (0, 0)))
    y = np.tensordot(windows(X, V.shape[:2], stride), V, axes=([4, 5, 3], [0, 1, 2])) + b
    return first(y), (X, V, stride, pad)
