# refused by: initial sizes
# variant: convention = plain|one_rate, optimizer = sgd


right = table


def table():
    found = right()
    a, b, c = found["input"]
    found["input"] = (a, b + 0.5, c)  # 1 / sqrt(n), as if the fan-in were the width
    return found
