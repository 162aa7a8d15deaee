# refused by: ensemble covariance


def ensemble_cov(K, K_test, K_prior, Theta, Theta_test, t):
    return K_prior - taken(K, K_test, Theta, Theta_test, t) @ rows(K_test).T
