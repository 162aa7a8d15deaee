# refused by: empirical kernel, samples, experiment


def empirical_ntk(x1, x2, params, w_std, b_std):
    h1, h2 = hidden(x1, params, w_std, b_std), hidden(x2, params, w_std, b_std)
    return w_std**2 / h1.shape[1] * phi(h1) @ phi(h2).T + b_std**2
