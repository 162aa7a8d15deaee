# refused by: max pool with padding, max pool backward, ties


def max_pool(x, size, stride, pad):
    X = padded(last(x), pad)
    w = windows(X, (size, size), stride)
    w = w.reshape(*w.shape[:4], size * size)
    return first(w.max(axis=-1)), (X, w.argmax(axis=-1), size, stride, pad)
