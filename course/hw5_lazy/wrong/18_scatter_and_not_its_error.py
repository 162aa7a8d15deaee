# refused by: fit, study


right = fit


def fit(widths, values, confidence):  # uses the residuals' deviation in place of the slope's error
    b, low, high = right(widths, values, confidence)
    n = np.repeat(np.log(widths), values.shape[1])
    wider = np.sqrt(np.sum((n - n.mean()) ** 2))
    return b, b + wider * (low - b), b + wider * (high - b)
