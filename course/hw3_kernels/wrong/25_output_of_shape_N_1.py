# refused by: network


flat = network


def network(x, params, w_std, b_std):
    return flat(x, params, w_std, b_std)[:, None]
