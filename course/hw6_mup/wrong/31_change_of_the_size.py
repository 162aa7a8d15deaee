# refused by: sizes, coordinate check, measurement


right = sizes


def sizes(x, y, weights, table, lr, steps):
    end, start = right(x, y, weights, table, lr, steps)[0], right(x, y, weights, table, lr, 0)[0]
    return np.array([end, np.abs(end - start)])
