# refused by: flow, singular


def flow(K, y, t, f0):
    lam, V = eigen(K)
    with np.errstate(all="ignore"):
        return y + V @ (np.float64(1 - lam)[:, None] ** t * (V.T @ (f0 - y)))
