# refused by: transfer


right = transfer


def transfer(x, y, widths, seeds, rates, table, steps, seed):
    best = [[right(x, y, (n, n + 1), 1, rates, table, steps, seed)[0][0] for n in widths] for s in range(seeds)]
    return np.min(best, axis=0), float(np.polyfit(np.log2(widths), np.log2(np.min(best, axis=0)), 1)[0])
