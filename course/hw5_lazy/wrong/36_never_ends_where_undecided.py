# refused by: study
# isolated


def study(x, y, widths, lr, steps, seed, theory, against, budget, level):  # ignores the budget
    seeds, look = 4, 1
    while True:
        b, low, high = fit(widths, measure(x, y, widths, seeds, lr, steps, seed), 1 - level / 2**look)
        if (said := verdict(low, high, theory, against)) != "undecided":
            return said, seeds, b, low, high
        seeds, look = 2 * seeds, look + 1
