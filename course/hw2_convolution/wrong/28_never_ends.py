# refused by: conv backward, speed
# isolated

_conv_backward = conv_backward


def conv_backward(u, cache):
    while u.size > 10000:
        pass
    return _conv_backward(u, cache)
