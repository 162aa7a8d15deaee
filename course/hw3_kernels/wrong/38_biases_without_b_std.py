# refused by: network


def network(x, params, w_std, b_std):
    W, b, a, c = params
    return w_std / np.sqrt(len(a)) * phi(w_std / np.sqrt(x.shape[1]) * x @ W + b) @ a + c
