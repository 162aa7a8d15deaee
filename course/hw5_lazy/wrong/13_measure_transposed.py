# refused by: measure, study


def measure(x, y, widths, seeds, lr, steps, seed):
    d = x.shape[1]
    return np.array([[deviation(x, y, *draw(seed, n, s, d), lr, steps) for n in widths] for s in range(seeds)])
