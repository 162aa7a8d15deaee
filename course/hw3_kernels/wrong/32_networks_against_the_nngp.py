# refused by: experiment


def experiment(x, width, seeds, w_std, b_std, level):
    return z_test(sample(x, width, seeds, w_std, b_std), kernels(x, x, 1, w_std, b_std)[0], level)
