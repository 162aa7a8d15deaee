# refused by: flow, singular


def flow(K, y, t, f0):
    return K @ (matrix(K, t) @ y)
