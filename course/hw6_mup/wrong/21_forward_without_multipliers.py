# refused by: forward, gradients, step, sizes, measurement


def forward(x, weights, table):
    h = []
    for W in weights:
        h.append((np.tanh(h[-1]) if h else x) @ W)
    return h
