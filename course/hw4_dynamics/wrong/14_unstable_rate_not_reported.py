# refused by: unstable


def descent(K, y, lr, steps, f0):
    lam, V = eigen(K)
    with np.errstate(over="ignore"):
        return y + V @ ((1 - lr * lam)[:, None] ** steps * (V.T @ (f0 - y)))
