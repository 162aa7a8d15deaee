# refused by: max pool, max pool with padding, max pool backward, ties


def max_pool(x, size, stride, pad):
    X = padded(last(x), pad, -np.inf)
    w = windows(X, (size, size), stride)
    w = w.reshape(*w.shape[:4], size * size)
    which = np.broadcast_to(w[..., :1, :].argmax(axis=-1), w.shape[:4])
    return first(np.take_along_axis(w, which[..., None], axis=-1)[..., 0]), (X, which, size, stride, pad)
