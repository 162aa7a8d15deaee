# refused by: cross-entropy backward, gradients, gradients in parts, training, measurement
# variant: loss = mean


def cross_entropy_backward(u, cache):
    z, labels = cache
    p = np.exp(log_softmax(z))
    p[np.arange(len(z)), labels] -= 1
    return p * np.asarray(u, dtype=z.dtype)
