# refused by: measure, study


def measure(x, y, widths, seeds, lr, steps, seed):  # the same network every time: no scatter, no interval
    d = x.shape[1]
    return np.array([[deviation(x, y, *draw(seed, n, 0, d), lr, steps)] * seeds for n in widths])
