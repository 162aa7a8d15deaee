# refused by: study


def study(x, y, widths, lr, steps, seed, theory, against, budget, level):  # every look uses the full level
    seeds = 4
    while True:
        b, low, high = fit(widths, measure(x, y, widths, seeds, lr, steps, seed), 1 - level)
        said = verdict(low, high, theory, against)
        if said != "undecided" or 2 * seeds > budget:
            return said, seeds, b, low, high
        seeds *= 2
