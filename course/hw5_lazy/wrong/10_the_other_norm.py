# refused by: deviation, measure, study


def deviation(x, y, W, a, lr, steps):
    apart = np.abs(train(x, y, W, a, lr, steps) - train_lin(x, y, W, a, lr, steps))
    each = np.sqrt(np.mean(apart**2, axis=1)) if NORM == "max" else apart.max(axis=1)
    return float(each.max())
