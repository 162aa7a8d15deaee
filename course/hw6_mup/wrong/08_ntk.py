# refused by: initial sizes, learning rates
# variant: convention = unit, optimizer = sgd


def table():
    return {"input": (0, 0, 0), "hidden": (0.5, 0, 0), "output": (0.5, 0, 0)}
