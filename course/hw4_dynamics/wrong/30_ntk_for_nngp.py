# refused by: ensemble mean, ensemble covariance
# variant: trained = last


def taken(K, K_test, Theta, Theta_test, t):
    return rows(Theta_test) @ matrix(Theta, t)
