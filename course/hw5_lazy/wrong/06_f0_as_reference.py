# refused by: deviation, measure, study, law of width


def deviation(x, y, W, a, lr, steps):
    apart = np.abs(train(x, y, W, a, lr, steps) - outputs(x, W, a))
    each = np.sqrt(np.mean(apart**2, axis=1)) if NORM == "rms" else apart.max(axis=1)
    return float(each.max())
