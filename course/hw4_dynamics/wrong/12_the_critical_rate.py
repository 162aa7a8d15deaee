# refused by: stability


largest = max_learning_rate


def max_learning_rate(K):
    lam = eigen(K)[0]
    return float(2 / (lam[0] + lam[-1]))


def descent(K, y, lr, steps, f0):
    if lr > largest(K):
        raise ValueError("this learning rate diverges")
    lam, V = eigen(K)
    return y + V @ ((1 - lr * lam)[:, None] ** steps * (V.T @ (f0 - y)))
