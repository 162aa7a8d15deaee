# refused by: initial weights


def initial(seed, n, s, d, C, table):  # takes the fan-in of each layer for the width n
    weights = []
    for place, W in zip(PLACES, draw(seed, n, s, d, C)):
        std = SIGMA[place] * float(len(W)) ** -table[place][1]
        weights.append(W * (std / np.sqrt(d) if place == "input" else std))
    return weights
