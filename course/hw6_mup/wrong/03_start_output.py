# refused by: initial sizes
# variant: convention = plain|one_rate


right = table


def table():
    found = right()
    a, b, c = found["output"]
    found["output"] = (a, b - 0.5, c)  # 1 / sqrt(n), as in the hidden layer
    return found
