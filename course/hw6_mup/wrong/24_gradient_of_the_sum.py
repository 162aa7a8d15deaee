# refused by: gradients, step, sizes, coordinate check, transfer, measurement
# variant: optimizer = sgd


right = gradients


def gradients(x, y, weights, table):
    return [len(x) * dW for dW in right(x, y, weights, table)]
