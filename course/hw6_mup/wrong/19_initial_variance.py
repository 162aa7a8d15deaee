# refused by: initial weights, coordinate check, transfer, measurement


right = initial


def initial(seed, n, s, d, C, table):
    return right(seed, n, s, d, C, {place: (a, 2 * b, c) for place, (a, b, c) in table.items()})
