# refused by: best rate, transfer


def best_rate(rates, losses):
    i = int(np.argmin(losses))
    if i in (0, len(rates) - 1):
        return float(rates[i])
    bend, tilt, _ = np.polyfit(rates[i - 1 : i + 2], losses[i - 1 : i + 2], 2)
    return float(-tilt / (2 * bend))
