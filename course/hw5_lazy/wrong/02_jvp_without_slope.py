# refused by: jvp, f_lin, linearised training, deviation, measure, study, law of width


def jvp(x, W, a, dW, da):
    d, n = W.shape
    return ((x @ dW / np.sqrt(d)) @ a + phi(x @ W / np.sqrt(d)) @ da) / np.sqrt(n)
