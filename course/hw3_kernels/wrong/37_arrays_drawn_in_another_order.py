# refused by: samples, experiment


def sample(x, width, seeds, w_std, b_std):
    found = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        a = rng.standard_normal(width)
        W = rng.standard_normal((x.shape[1], width))
        b = rng.standard_normal(width) if BIAS == "drawn" else np.zeros(width)
        c = rng.standard_normal(1) if BIAS == "drawn" else np.zeros(1)
        found.append(empirical_ntk(x, x, (W, b, a, c), w_std, b_std))
    return np.array(found)
