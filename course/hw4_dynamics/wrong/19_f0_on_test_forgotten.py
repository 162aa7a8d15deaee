# refused by: predict, singular, hard inputs


def predict(K, K_test, y, t, f0, f0_test):
    return rows(K_test) @ (matrix(K, t) @ (y - f0))
