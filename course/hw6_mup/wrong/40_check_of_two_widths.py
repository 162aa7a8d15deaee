# refused by: coordinate check


right = coordinate_check


def coordinate_check(x, y, widths, seeds, table, lr, steps, seed):  # uses only the first and the last width
    return right(x, y, (widths[0], widths[-1]), seeds, table, lr, steps, seed)
