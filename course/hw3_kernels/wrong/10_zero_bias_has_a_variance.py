# refused by: dense, kernels, kernels on hard inputs, deep, experiment, measurement
# variant: bias = zero


def dense(K, Theta, w_std, b_std):
    return w_std**2 * K + b_std**2, w_std**2 * Theta + w_std**2 * K + b_std**2
