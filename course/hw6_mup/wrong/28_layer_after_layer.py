# refused by: step, sizes, coordinate check, transfer, measurement


right = step


def step(x, y, weights, table, lr):  # the gradient of a layer sees the steps of those before it
    for at in range(3):
        weights = [*weights[:at], right(x, y, weights, table, lr)[at], *weights[at + 1 :]]
    return weights
