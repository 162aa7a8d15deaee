# refused by: ties


_max_pool = max_pool


def max_pool(x, size, stride, pad):
    y, _ = _max_pool(x, size, stride, pad)
    X = padded(last(x), pad, -np.inf)
    w = windows(X, (size, size), stride)
    w = w.reshape(*w.shape[:4], size * size)[..., ::-1]
    return y, (X, size * size - 1 - w.argmax(axis=-1), size, stride, pad)
