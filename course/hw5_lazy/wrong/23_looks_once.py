# refused by: study


def study(x, y, widths, lr, steps, seed, theory, against, budget, level):
    b, low, high = fit(widths, measure(x, y, widths, 4, lr, steps, seed), 1 - level / 2)
    return verdict(low, high, theory, against), 4, b, low, high
