# refused by: kernels, kernels on hard inputs, deep, experiment, measurement


divided = kernels


def kernels(x1, x2, depth, w_std, b_std):
    root = np.sqrt(x1.shape[1])
    return divided(x1 * root, x2 * root, depth, w_std, b_std)
