# refused by: empirical kernel, samples, experiment


once = empirical_ntk


def empirical_ntk(x1, x2, params, w_std, b_std):
    return len(params[2]) * once(x1, x2, params, w_std, b_std)
