# refused by: weights


def weights(J, y, t, f0):
    return J.T @ (y - f0) * min(t, 1e9) / (len(y) if LOSS == "mean" else 1)
