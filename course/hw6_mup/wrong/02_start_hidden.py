# refused by: initial sizes
# variant: convention = plain|one_rate


right = table


def table():
    found = right()
    a, b, c = found["hidden"]
    found["hidden"] = (a, b - 0.5, c)  # of order one for every fan-in
    return found
