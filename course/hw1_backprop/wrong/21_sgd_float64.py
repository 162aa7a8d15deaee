# refused by: sgd


def sgd(p, g, v, lr, momentum):
    lr, momentum = np.array(lr), np.array(momentum)
    v = momentum * v + g
    return p - lr * v, v
