# refused by: measurement


def draw_functions(K, draws, seed):
    L = np.linalg.cholesky(K + 1e-12 * np.eye(len(K)))
    return L @ np.random.default_rng(seed).standard_normal((len(K), draws))
