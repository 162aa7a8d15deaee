# refused by: weights


def weights(J, y, t, f0):
    return np.linalg.pinv(J) @ (y - f0)
