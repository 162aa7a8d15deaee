# refused by: average pool backward

_avg_pool_backward = avg_pool_backward


def avg_pool_backward(u, cache):
    shape, count, *rest = cache
    return _avg_pool_backward(u, (shape, np.ones_like(count), *rest))
