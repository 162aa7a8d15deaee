# refused by: measurement

solved = channel_noise


def channel_noise(x, widths, draws, seed):
    return solved(x, widths, draws, seed) / 2
