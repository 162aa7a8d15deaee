# refused by: transfer
# isolated


def transfer(x, y, widths, seeds, rates, table, steps, seed):
    while True:  # until the loss is zero
        seeds += 1
