# refused by: training, deviation, measure, study, law of width


def train(x, y, W, a, lr, steps):  # the linearised network then starts where the network ends
    rate = lr / len(y) if LOSS == "mean" else lr
    f = [outputs(x, W, a)]
    for _ in range(steps):
        dW, da = vjp(x, W, a, f[-1] - y)
        W -= rate * dW
        a -= rate * da
        f.append(outputs(x, W, a))
    return np.array(f)
