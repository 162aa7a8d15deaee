# refused by: ensemble covariance


def ensemble_cov(K, K_test, K_prior, Theta, Theta_test, t):
    A = taken(K, K_test, Theta, Theta_test, t)
    return K_prior + A @ K @ A.T - A @ rows(K_test).T
