# refused by: empirical kernel, samples, experiment


def empirical_ntk(x1, x2, params, w_std, b_std):
    _, _, a, _ = params
    d, n = x1.shape[1], len(a)
    h1, h2 = hidden(x1, params, w_std, b_std), hidden(x2, params, w_std, b_std)
    last = w_std**2 / n * phi(h1) @ phi(h2).T + b_std**2
    back = w_std**2 / n * (slope(h1) * a**2) @ np.ones_like(h2).T
    return last + back * (w_std**2 / d * x1 @ x2.T + b_std**2)
