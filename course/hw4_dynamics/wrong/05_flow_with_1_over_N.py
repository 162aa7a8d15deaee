# refused by: flow, singular
# variant: loss = sum


def flow(K, y, t, f0):
    lam, V = eigen(K)
    return f0 + V @ ((lam * gain(lam, t / len(y)))[:, None] * (V.T @ (y - f0)))
