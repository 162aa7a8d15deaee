# refused by: large logits


def log_softmax(z):  # rows far below the largest of all underflow
    z = z - z.max()
    with np.errstate(divide="ignore", invalid="ignore"):
        return z - np.log(np.exp(z).sum(axis=1, keepdims=True))
