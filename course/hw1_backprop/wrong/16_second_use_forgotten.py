# refused by: weights used twice


def twice_backward(u, cache):
    first, middle, last = cache
    da, dW, db = dense_backward(u, last)
    dx, _, _ = dense_backward(activate_backward(da, middle), first)
    return dx, dW, db
