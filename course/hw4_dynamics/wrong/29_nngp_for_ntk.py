# refused by: ensemble mean, ensemble covariance
# variant: trained = all


def taken(K, K_test, Theta, Theta_test, t):
    return rows(K_test) @ matrix(K, t)
