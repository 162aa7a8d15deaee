# refused by: measurement


def condition(K, f, known, y):
    return f + (K[:, known] @ np.linalg.solve(K[np.ix_(known, known)], y))[:, None]
