# refused by: step, sizes, coordinate check, transfer, measurement


right = step


def step(x, y, weights, table, lr):  # computes each gradient after the steps of the layers before
    for at in range(3):
        weights = [*weights[:at], right(x, y, weights, table, lr)[at], *weights[at + 1 :]]
    return weights
