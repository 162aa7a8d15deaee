# refused by: dense backward, gradients, gradients in parts, weights used twice, training, measurement


def dense_backward(u, cache):
    x, W = cache
    if WEIGHTS == "in_out":
        return u @ W.T, x.T @ u, u.mean(axis=0)
    return u @ W, u.T @ x, u.mean(axis=0)
