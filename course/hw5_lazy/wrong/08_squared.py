# refused by: deviation, measure, study, law of width


def deviation(x, y, W, a, lr, steps):
    apart = (train(x, y, W, a, lr, steps) - train_lin(x, y, W, a, lr, steps)) ** 2
    each = np.mean(apart, axis=1) if NORM == "rms" else apart.max(axis=1)
    return float(each.max())
