# refused by: gradients, gradients in parts, weights used twice, training, measurement


_dense, _dense_backward, _last = dense, dense_backward, []


def dense(x, W, b):
    y, cache = _dense(x, W, b)
    _last[:] = [cache]
    return y, None


def dense_backward(u, cache):
    return _dense_backward(u, _last[0])
