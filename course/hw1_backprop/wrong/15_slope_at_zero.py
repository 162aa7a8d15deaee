# refused by: activation backward
# variant: activation = relu


def activate_backward(u, cache):
    return u * (cache >= 0)
