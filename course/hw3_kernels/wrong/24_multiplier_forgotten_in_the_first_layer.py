# refused by: network, empirical kernel, samples, experiment


def hidden(x, params, w_std, b_std):
    W, b, _, _ = params
    return w_std * x @ W + b_std * b
