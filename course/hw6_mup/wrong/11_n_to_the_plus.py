# refused by: initial sizes, learning rates
# variant: convention = plain


right = table


def table():  # n^b and n^c, where the handout has n^-b and n^-c
    return {place: tuple(-value for value in row) for place, row in right().items()}
