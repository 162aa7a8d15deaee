# refused by: step, sizes, coordinate check, transfer, measurement


right = step


def step(x, y, weights, table, lr):  # the table's rates are forgotten
    return right(x, y, weights, {place: (a, b, 0) for place, (a, b, c) in table.items()}, lr)
