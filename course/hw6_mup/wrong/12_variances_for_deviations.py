# refused by: initial sizes
# variant: convention = plain


right = table


def table():
    return {place: (a, 2 * b, c) for place, (a, b, c) in right().items()}
