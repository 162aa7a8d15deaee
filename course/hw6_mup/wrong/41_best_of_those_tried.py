# refused by: best rate, transfer


def best_rate(rates, losses):
    return float(rates[int(np.argmin(losses))])
