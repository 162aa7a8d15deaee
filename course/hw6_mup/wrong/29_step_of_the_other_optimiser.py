# refused by: step, sizes, coordinate check, transfer, measurement


def step(x, y, weights, table, lr):
    n, found = float(len(weights[1])), []
    for place, W, dW in zip(PLACES, weights, gradients(x, y, weights, table)):
        found.append(W - lr * n ** -table[place][2] * (dW if OPTIMIZER == "sign" else np.sign(dW)))
    return found
