# refused by: empirical kernel, samples, experiment


_right = empirical_ntk


def empirical_ntk(x1, x2, params, w_std, b_std):
    return _right(x1, x2, params, w_std, b_std) - b_std**2 + 1
