# refused by: step
# variant: loss = mean


def step(K, f, y, lr):
    return f - lr * K @ (f - y)
