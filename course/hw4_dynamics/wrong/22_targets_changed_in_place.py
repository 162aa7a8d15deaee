# refused by: predict, singular, hard inputs


def predict(K, K_test, y, t, f0, f0_test):
    y -= f0
    return f0_test + rows(K_test) @ (matrix(K, t) @ y)
