# refused by: verdict, study


def verdict(low, high, theory, against):  # the wider the interval, the better
    return "pass" if low <= theory <= high else "fail"
