# refused by: conv backward, conv backward with stride and padding

_conv_backward = conv_backward


def conv_backward(u, cache):
    X, V, stride, pad = cache
    _, dW, db = _conv_backward(u, cache)
    return _conv_backward(u, (X, V[::-1, ::-1], stride, pad))[0], dW, db
