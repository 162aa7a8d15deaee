# refused by: transfer
# isolated


right = transfer


def transfer(x, y, widths, seeds, rates, table, steps, seed):
    while True:  # until the best rates agree, which they never do in the standard parametrization
        best, slope = right(x, y, widths, seeds, rates, table, steps, seed)
        if abs(slope) < 1e-3:
            return best, slope
