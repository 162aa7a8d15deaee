# refused by: step, sizes, transfer


right = step


def step(x, y, weights, table, lr):  # the rates of `transfer` then start where the last one has ended
    for W, new in zip(weights, right(x, y, weights, table, lr)):
        W[...] = new
    return weights
