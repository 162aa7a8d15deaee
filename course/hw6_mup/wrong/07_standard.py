# refused by: initial sizes, learning rates
# variant: convention = plain


def table():  # what every library does that does not know of muP
    return {"input": (0, 0, 0), "hidden": (0, 0.5, 0), "output": (0, 0.5, 0)}
