# refused by: centred training, law of scale


right = train_centred


def train_centred(x, y, W, a, alpha, lr, steps):
    return right(x, y, W, a, alpha, lr * alpha, steps)
