# refused by: sgd, training


def sgd(p, g, v, lr, momentum):
    return p - lr * v, momentum * v + g
