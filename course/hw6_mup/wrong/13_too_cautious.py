# refused by: learning rates
# variant: convention = plain|unit


right = table


def table():  # nothing explodes, but a wide network learns nothing
    return {place: (a, b, c + 1) for place, (a, b, c) in right().items()}
