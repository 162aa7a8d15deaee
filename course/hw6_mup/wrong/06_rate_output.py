# refused by: learning rates
# variant: convention = plain|unit, optimizer = sgd


right = table


def table():
    found = right()
    a, b, c = found["output"]
    found["output"] = (a, b, c - 1)  # as in the hidden layer
    return found
