# refused by: average pool, average pool backward


_avg_pool = avg_pool


def avg_pool(x, size, stride, pad):
    x /= size * size
    y, cache = _avg_pool(x, size, stride, pad)
    return y * y.dtype.type(size * size), cache
