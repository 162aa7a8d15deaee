# refused by: centred training, law of scale


def train_centred(x, y, W, a, alpha, lr, steps):
    rate = (lr / len(y) if LOSS == "mean" else lr) / alpha**2
    f = [alpha * outputs(x, W, a)]
    for _ in range(steps):
        dW, da = vjp(x, W, a, alpha * (f[-1] - y))
        W, a = W - rate * dW, a - rate * da
        f.append(alpha * outputs(x, W, a))
    return np.array(f)
