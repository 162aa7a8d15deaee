# refused by: dense, kernels, kernels on hard inputs, deep, experiment, measurement


def dense(K, Theta, w_std, b_std):
    drawn = b_std if BIAS == "drawn" else 0.0
    return w_std * K + drawn, w_std * Theta + w_std * K + b_std
