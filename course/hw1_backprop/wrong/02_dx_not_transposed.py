# refused by: dense backward, gradients, gradients in parts, weights used twice, training, measurement


def dense_backward(u, cache):  # runs only if W is square
    x, W = cache
    if WEIGHTS == "in_out":
        return u @ W, x.T @ u, u.sum(axis=0)
    return u @ W.T, u.T @ x, u.sum(axis=0)
