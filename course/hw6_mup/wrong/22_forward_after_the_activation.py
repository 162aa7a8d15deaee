# refused by: forward, sizes, coordinate check, measurement


before = forward


def forward(x, weights, table):  # returns h1 and h2 after tanh
    first, second, f = before(x, weights, table)
    return [np.tanh(first), np.tanh(second), f]


def gradients(x, y, weights, table, right=gradients):
    n, (first, second, f) = float(len(weights[1])), forward(x, weights, table)
    inputs, u, found = [x, first, second], (f - y) / len(x), []
    for at in (2, 1, 0):
        multiplier = n ** -table[PLACES[at]][0]
        found.insert(0, multiplier * inputs[at].T @ u)
        u = multiplier * u @ weights[at].T * (1 - inputs[at] ** 2) if at else u
    return found
