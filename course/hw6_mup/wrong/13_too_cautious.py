# refused by: learning rates
# variant: convention = plain|unit


right = table


def table():  # nothing explodes, and nothing is learned in a wide network
    return {place: (a, b, c + 1) for place, (a, b, c) in right().items()}
