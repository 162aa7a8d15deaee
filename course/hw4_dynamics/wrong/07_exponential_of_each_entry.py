# refused by: flow, singular


def flow(K, y, t, f0):
    return y + np.exp(-K * t / (len(y) if LOSS == "mean" else 1)) @ (f0 - y)
