# refused by: learning rates
# variant: convention = plain|unit, optimizer = sgd


right = table


def table():
    found = right()
    a, b, c = found["hidden"]
    found["hidden"] = (a, b, c + 1)  # too small: this layer hardly learns
    return found
