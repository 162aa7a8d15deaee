# refused by: conv backward, conv backward with stride and padding

_conv_backward = conv_backward


def conv_backward(u, cache):  # sums only over the examples, as in a dense layer
    dx, dW, _ = _conv_backward(u, cache)
    return dx, dW, u.sum(axis=0)
