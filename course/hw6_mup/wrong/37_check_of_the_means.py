# refused by: coordinate check


def coordinate_check(x, y, widths, seeds, table, lr, steps, seed):
    d, C = x.shape[1], y.shape[1]
    found = [[sizes(x, y, initial(seed, n, s, d, C, table), table, lr, steps) for s in range(seeds)] for n in widths]
    return np.polyfit(np.log(widths), np.log(np.mean(found, axis=1)).reshape(-1, 6), 1)[0].reshape(2, 3)
