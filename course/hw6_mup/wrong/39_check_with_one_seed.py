# refused by: coordinate check


right = coordinate_check


def coordinate_check(x, y, widths, seeds, table, lr, steps, seed):
    return right(x, y, widths, 1, table, lr, steps, seed)
