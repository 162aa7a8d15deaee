# refused by: stability, unstable


def max_learning_rate(K):
    return float(2 / eigen(K)[0][0])
