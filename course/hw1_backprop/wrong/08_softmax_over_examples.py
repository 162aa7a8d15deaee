# refused by: log softmax, large logits, cross-entropy, cross-entropy backward, gradients, gradients in parts, training, measurement


def log_softmax(z):
    z = z - z.max(axis=0, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=0, keepdims=True))
