# refused by: kernels, kernels on hard inputs, deep, experiment, measurement


several = kernels


def kernels(x1, x2, depth, w_std, b_std):
    return several(x1, x2, max(depth - 1, 0), w_std, b_std)
