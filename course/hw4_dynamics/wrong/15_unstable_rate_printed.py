# refused by: unstable


def descent(K, y, lr, steps, f0):
    if lr > max_learning_rate(K):
        print("this learning rate diverges")
    lam, V = eigen(K)
    return y + V @ ((1 - lr * lam)[:, None] ** steps * (V.T @ (f0 - y)))
