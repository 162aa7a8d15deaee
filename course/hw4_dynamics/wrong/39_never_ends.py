# refused by: posterior
# isolated


def posterior(K, K_test, K_prior, y):
    while K.shape == K_test.shape:
        pass
    A = rows(K_test) @ np.linalg.inv(K)
    return A @ y, K_prior - A @ rows(K_test).T
