# refused by: sizes, coordinate check, measurement


right = sizes


def sizes(x, y, weights, table, lr, steps):  # the norm of a vector grows with its length
    shapes = [h.size for h in forward(x, weights, table)]
    return right(x, y, weights, table, lr, steps) * np.array(shapes) ** (0.5 if SIZE == "rms" else 1)
