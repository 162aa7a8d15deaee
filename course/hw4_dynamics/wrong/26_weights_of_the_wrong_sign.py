# refused by: weights


downhill = weights


def weights(J, y, t, f0):
    return downhill(J, f0, t, y)
