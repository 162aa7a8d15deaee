# refused by: fit, study


def fit(widths, values, confidence):  # treats the means as exact and discards the scatter between seeds
    n, v = np.log(widths), np.log(values).mean(axis=1)
    n = n - n.mean()
    b = n @ v / (n @ n)
    rest = v - v.mean() - b * n
    reach = stdtrit(len(v) - 2, (1 + confidence) / 2) * np.sqrt(rest @ rest / (len(v) - 2) / (n @ n))
    return b, b - reach, b + reach
