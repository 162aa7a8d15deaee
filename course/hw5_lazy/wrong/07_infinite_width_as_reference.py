# refused by: deviation, measure, study, law of width
# variant: activation = erf


def infinite(x):  # the NTK of an infinitely wide erf network
    d = x.shape[1]
    K = x @ x.T / d
    D = np.sqrt(np.outer(1 + 2 * np.diag(K), 1 + 2 * np.diag(K)))
    return 2 / np.pi * np.arcsin(2 * K / D) + K * 4 / np.pi / np.sqrt(D**2 - 4 * K**2)


def deviation(x, y, W, a, lr, steps):
    rate, Theta = lr / len(y) if LOSS == "mean" else lr, infinite(x)
    g = [outputs(x, W, a)]
    for _ in range(steps):
        g.append(g[-1] - rate * Theta @ (g[-1] - y))
    apart = np.abs(train(x, y, W, a, lr, steps) - np.array(g))
    each = np.sqrt(np.mean(apart**2, axis=1)) if NORM == "rms" else apart.max(axis=1)
    return float(each.max())
