# refused by: dense backward, gradients, gradients in parts, weights used twice, training


def dense_backward(u, cache):
    x, W = cache
    if WEIGHTS == "in_out":
        return u @ W.T, u.T @ x, u.sum(axis=0)
    return u @ W, x.T @ u, u.sum(axis=0)
