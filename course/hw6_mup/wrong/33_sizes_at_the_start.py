# refused by: sizes, coordinate check


right = sizes


def sizes(x, y, weights, table, lr, steps):
    return np.array([right(x, y, weights, table, lr, 0)[0], right(x, y, weights, table, lr, steps)[1]])
