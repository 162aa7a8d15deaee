# refused by: verdict, study


right = verdict


def verdict(low, high, theory, against):
    return "fail" if right(low, high, theory, against) == "fail" else "pass"
