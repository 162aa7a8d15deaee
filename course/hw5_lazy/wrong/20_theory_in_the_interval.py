# refused by: verdict, study


def verdict(low, high, theory, against):  # a wide enough interval always passes
    return "pass" if low <= theory <= high else "fail"
