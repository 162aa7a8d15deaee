# refused by: ensemble covariance


def ensemble_cov(K, K_test, K_prior, Theta, Theta_test, t):
    return posterior(K, K_test, K_prior, np.zeros((len(K), 1)))[1]
