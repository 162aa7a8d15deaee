# refused by: verdict, study


def verdict(low, high, theory, against):  # the slope is what counts
    b = (low + high) / 2
    return "pass" if abs(b - theory) < abs(b - against) else "fail"
