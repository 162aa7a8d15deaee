# refused by: descent, many steps


def descent(K, y, lr, steps, f0):
    if lr > max_learning_rate(K):
        raise ValueError("this learning rate diverges")
    return flow(K, y, lr * steps, f0)
