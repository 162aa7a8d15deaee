# refused by: average pool backward

_avg_pool_backward = avg_pool_backward


def avg_pool_backward(u, cache):  # right only if windows do not overlap
    shape, count, size, stride, pad = cache
    return _avg_pool_backward(u, (shape, count, stride, stride, pad))
