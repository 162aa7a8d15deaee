# refused by: sizes, coordinate check, measurement


right = sizes


def sizes(x, y, weights, table, lr, steps):
    end = right(x, y, weights, table, lr, steps)[0]
    for _ in range(steps - 1):
        weights = step(x, y, weights, table, lr)
    return np.array([end, right(x, y, weights, table, lr, 1)[1]])
