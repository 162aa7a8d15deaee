# refused by: training, deviation, measure, study, law of width


def train(x, y, W, a, lr, steps):  # the last outputs appear twice, and the initial ones are missing
    rate = lr / len(y) if LOSS == "mean" else lr
    f = []
    for _ in range(steps):
        dW, da = vjp(x, W, a, outputs(x, W, a) - y)
        W, a = W - rate * dW, a - rate * da
        f.append(outputs(x, W, a))
    return np.array([*f, f[-1]])
