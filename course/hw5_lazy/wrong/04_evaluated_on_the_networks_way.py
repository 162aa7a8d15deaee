# refused by: linearised training, deviation, measure, study


def train_lin(x, y, W0, a0, lr, steps):  # trains the network, and evaluates f_lin along its path
    rate = lr / len(y) if LOSS == "mean" else lr
    W, a, f = W0, a0, [outputs(x, W0, a0)]
    for _ in range(steps):
        dW, da = vjp(x, W, a, outputs(x, W, a) - y)
        W, a = W - rate * dW, a - rate * da
        f.append(f_lin(x, W0, a0, W, a))
    return np.array(f)
