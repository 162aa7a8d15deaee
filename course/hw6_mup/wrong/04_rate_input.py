# refused by: learning rates
# variant: convention = plain|unit


right = table


def table():
    found = right()
    a, b, c = found["input"]
    found["input"] = (a, b, c + 1)  # as in the hidden layer
    return found
