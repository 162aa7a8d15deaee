# refused by: unstable


quiet = descent


def descent(K, y, lr, steps, f0):
    if lr > max_learning_rate(K):
        return np.full_like(y, np.nan)
    return quiet(K, y, lr, steps, f0)
