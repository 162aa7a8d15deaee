# refused by: posterior


def posterior(K, K_test, K_prior, y):
    A = rows(K_test) @ np.linalg.inv(K + 1e-3 * np.eye(len(K)))
    return A @ y, K_prior - A @ rows(K_test).T
