# refused by: step, sizes, coordinate check, transfer, measurement


right = step


def step(x, y, weights, table, lr):
    n = float(len(weights[1]))
    new = right(x, y, weights, table, lr)
    return [W + (V - W) * n ** (2 * table[place][2]) for place, W, V in zip(PLACES, weights, new)]
