# refused by: fit, study


def fit(widths, values, confidence):
    n, v = np.repeat(np.log(widths), values.shape[1]), values.ravel()
    n = n - n.mean()
    b = n @ v / (n @ n)
    rest = v - v.mean() - b * n
    reach = stdtrit(len(v) - 2, (1 + confidence) / 2) * np.sqrt(rest @ rest / (len(v) - 2) / (n @ n))
    return b, b - reach, b + reach
