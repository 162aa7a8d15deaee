# refused by: measure, study


def measure(x, y, widths, seeds, lr, steps, seed):
    found = np.empty((len(widths), seeds))
    for i, n in enumerate(widths):
        for s in range(seeds):
            rng = np.random.default_rng([seed, s])
            found[i, s] = deviation(x, y, rng.standard_normal((x.shape[1], n)), rng.standard_normal(n), lr, steps)
    return found
