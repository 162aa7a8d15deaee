# refused by: posterior
# isolated


def posterior(K, K_test, K_prior, y):
    while True:
        pass
