# refused by: sgd, training


def sgd(p, g, v, lr, momentum):
    v *= momentum
    v += g
    p -= lr * v
    return p, v
