# refused by: stability, descent, many steps, unstable


def max_learning_rate(K):
    return float(1 / eigen(K)[0][-1])
