# refused by: verdict, study


def verdict(low, high, theory, against):  # only the slope counts
    b = (low + high) / 2
    return "pass" if abs(b - theory) < abs(b - against) else "fail"
