# refused by: stability, unstable


def max_learning_rate(K):
    return float(2 / eigen(K)[0][0])


loud = descent


def descent(K, y, lr, steps, f0):
    with np.errstate(over="ignore"):
        return loud(K, y, lr, steps, f0)
