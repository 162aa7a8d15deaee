# refused by: predict, singular, hard inputs, posterior, ensemble mean, ensemble covariance, measurement


def rows(K_test):
    return K_test.T if LAYOUT == "test_first" else K_test
