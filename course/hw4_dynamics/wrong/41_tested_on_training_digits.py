# refused by: measurement


def learning_curve(x, y, sizes, draws, seed):
    K, found = own_kernel(x), []
    for N in sizes:
        for s in range(draws):
            at = np.random.default_rng([seed, N, s]).permutation(len(x))[:N]
            f = K[:, at] @ np.linalg.solve(K[np.ix_(at, at)], y[at])
            found.append((np.mean(np.sum((f - y) ** 2, axis=1)), np.mean(f.argmax(axis=1) != y.argmax(axis=1))))
    return np.reshape(found, (len(sizes), draws, 2)).transpose(2, 0, 1)
