# refused by: dense, kernels, kernels on hard inputs, deep, experiment, measurement


def dense(K, Theta, w_std, b_std):
    drawn = b_std**2 if BIAS == "drawn" else 0.0
    return w_std**2 * K + drawn, w_std**2 * Theta + w_std**2 * K
