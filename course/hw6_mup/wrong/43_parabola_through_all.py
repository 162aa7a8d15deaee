# refused by: best rate, transfer


def best_rate(rates, losses):
    bend, tilt, _ = np.polyfit(np.log(rates), losses, 2)
    return float(np.exp(-tilt / (2 * bend))) if bend else float(rates[int(np.argmin(losses))])
