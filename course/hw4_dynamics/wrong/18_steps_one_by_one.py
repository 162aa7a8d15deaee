# refused by: many steps
# isolated


def descent(K, y, lr, steps, f0):
    if lr > max_learning_rate(K):
        raise ValueError("this learning rate diverges")
    f = f0
    for _ in range(steps):
        f = step(K, f, y, lr)
    return f
