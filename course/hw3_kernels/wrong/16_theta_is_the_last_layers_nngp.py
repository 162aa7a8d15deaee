# refused by: kernels, kernels on hard inputs, deep, experiment, measurement


both = kernels


def kernels(x1, x2, depth, w_std, b_std):
    K, _ = both(x1, x2, depth, w_std, b_std)
    return K, K
