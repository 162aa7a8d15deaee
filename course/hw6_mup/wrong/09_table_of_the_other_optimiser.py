# refused by: learning rates
# variant: convention = plain


def table():
    c = (0, 1, 1) if OPTIMIZER == "sgd" else (-1, 0, 1)
    return dict(zip(PLACES, zip((0, 0, 0), (0, 0.5, 1), c)))
