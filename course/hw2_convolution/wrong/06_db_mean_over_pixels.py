# refused by: conv backward, conv backward with stride and padding

_conv_backward = conv_backward


def conv_backward(u, cache):
    dx, dW, _ = _conv_backward(u, cache)
    return dx, dW, last(u).sum(axis=0).mean(axis=(0, 1))
