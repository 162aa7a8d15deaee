# refused by: gradients, step, sizes, measurement
# variant: optimizer = sgd


right = gradients


def gradients(x, y, weights, table):
    n = float(len(weights[1]))
    return [dW * n ** table[place][0] for place, dW in zip(PLACES, right(x, y, weights, table))]
