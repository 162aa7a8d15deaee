# refused by: gradients, step, sizes, coordinate check, transfer, measurement
# variant: optimizer = sgd


def gradients(x, y, weights, table):  # the derivative of tanh is forgotten
    n, h = float(len(weights[1])), forward(x, weights, table)
    inputs, u, found = [x, np.tanh(h[0]), np.tanh(h[1])], (h[2] - y) / len(x), []
    for at in (2, 1, 0):
        multiplier = n ** -table[PLACES[at]][0]
        found.insert(0, multiplier * inputs[at].T @ u)
        u = multiplier * u @ weights[at].T
    return found
