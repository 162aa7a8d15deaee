# refused by: descent, many steps


def descent(K, y, lr, steps, f0):
    if lr > max_learning_rate(K):
        raise ValueError("this learning rate diverges")
    lam, V = eigen(K)
    return y + V @ ((1 - lr * lam)[:, None] ** (steps + 1) * (V.T @ (f0 - y)))
