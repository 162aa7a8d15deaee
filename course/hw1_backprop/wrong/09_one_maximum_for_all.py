# refused by: large logits


def log_softmax(z):  # underflows in rows far below the largest entry of z
    z = z - z.max()
    with np.errstate(divide="ignore", invalid="ignore"):
        return z - np.log(np.exp(z).sum(axis=1, keepdims=True))
