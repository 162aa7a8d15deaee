# refused by: posterior


whole = posterior


def posterior(K, K_test, K_prior, y):
    mean, cov = whole(K, K_test, K_prior, y)
    return mean, np.diag(cov)
