# refused by: dense, dense backward, network, gradients, gradients in parts, weights used twice, training, measurement


def dense(x, W, b):  # the layout of the neighbour's handout
    return (x @ W + b if WEIGHTS == "out_in" else x @ W.T + b), (x, W)


def dense_backward(u, cache):
    x, W = cache
    if WEIGHTS == "out_in":
        return u @ W.T, x.T @ u, u.sum(axis=0)
    return u @ W, u.T @ x, u.sum(axis=0)
