# refused by: fit, study


right = fit


def fit(widths, values, confidence):
    return right(widths, values, 2 * confidence - 1)
