# refused by: step, sizes, transfer


right = step


def step(x, y, weights, table, lr):  # each rate of `transfer` then starts where the last one ended
    for W, new in zip(weights, right(x, y, weights, table, lr)):
        W[...] = new
    return weights
