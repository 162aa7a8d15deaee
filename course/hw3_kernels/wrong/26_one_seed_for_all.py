# refused by: samples, experiment


def sample(x, width, seeds, w_std, b_std):
    found, rng = [], np.random.default_rng(seeds[0])
    for _ in seeds:
        W = rng.standard_normal((x.shape[1], width))
        b = rng.standard_normal(width) if BIAS == "drawn" else np.zeros(width)
        a = rng.standard_normal(width)
        c = rng.standard_normal(1) if BIAS == "drawn" else np.zeros(1)
        found.append(empirical_ntk(x, x, (W, b, a, c), w_std, b_std))
    return np.array(found)
