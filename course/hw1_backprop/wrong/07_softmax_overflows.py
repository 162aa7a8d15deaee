# refused by: large logits, cross-entropy backward


def log_softmax(z):
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return np.log(np.exp(z) / np.exp(z).sum(axis=1, keepdims=True))
