# refused by: step, sizes, transfer


right = step


def step(x, y, weights, table, lr):  # each run of `transfer` then starts where the run before it ended
    for W, new in zip(weights, right(x, y, weights, table, lr)):
        W[...] = new
    return weights
