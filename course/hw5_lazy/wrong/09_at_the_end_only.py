# refused by: deviation, measure, study


def deviation(x, y, W, a, lr, steps):  # instead of the supremum over t
    apart = np.abs(train(x, y, W, a, lr, steps)[-1] - train_lin(x, y, W, a, lr, steps)[-1])
    return float(np.sqrt(np.mean(apart**2)) if NORM == "rms" else apart.max())
