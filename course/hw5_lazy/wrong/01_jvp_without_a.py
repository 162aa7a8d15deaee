# refused by: jvp, f_lin, linearised training, deviation, measure, study, law of width


def jvp(x, W, a, dW, da):  # treats the last layer as constant
    d, n = W.shape
    return (slope(x @ W / np.sqrt(d)) * (x @ dW / np.sqrt(d))) @ a / np.sqrt(n)
