# refused by: average pool, average pool backward


def avg_pool(x, size, stride, pad):
    X = last(x)
    count = np.ones_like(windows(padded(X, pad), (size, size), stride)[..., 0, 0])
    return first(windows(padded(X, pad), (size, size), stride).sum(axis=(4, 5))), (X.shape, count, size, stride, pad)
