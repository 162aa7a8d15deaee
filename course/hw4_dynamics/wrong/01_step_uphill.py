# refused by: step


def step(K, f, y, lr):
    return f + lr / (len(y) if LOSS == "mean" else 1) * K @ (f - y)
