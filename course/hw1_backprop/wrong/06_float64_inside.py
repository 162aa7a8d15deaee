# refused by: dense, dense backward, gradients, weights used twice


def dense(x, W, b):
    y = np.zeros((len(x), len(b)))
    y += x @ (W if WEIGHTS == "in_out" else W.T) + b
    return y, (x, W)
