# refused by: step


def step(K, f, y, lr):
    return f - lr / y.size * K @ (f - y)
