# refused by: conv, conv with stride and padding, conv backward, conv backward with stride and padding


_conv = conv


def conv(x, W, b, stride, pad):
    y, cache = _conv(x, W, b, stride, pad)
    return y + np.zeros(y.shape), cache
