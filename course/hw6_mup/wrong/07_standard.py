# refused by: initial sizes, learning rates
# variant: convention = plain


def table():  # as in libraries that ignore muP
    return {"input": (0, 0, 0), "hidden": (0, 0.5, 0), "output": (0, 0.5, 0)}
