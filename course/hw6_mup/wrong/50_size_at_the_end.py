# refused by: measurement


def feature_sizes(x, y, widths, seeds, tables, lr, steps, seed):
    found = []
    for table in tables:
        for n in widths:
            for s in range(seeds):
                weights = initial(seed, n, s, x.shape[1], y.shape[1], table)
                found.append(sizes(x, y, weights, table, lr, steps)[:, 1])
    return np.reshape(found, (len(tables), len(widths), seeds, 2)).transpose(0, 3, 1, 2)
