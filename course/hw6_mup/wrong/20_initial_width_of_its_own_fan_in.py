# refused by: initial weights


def initial(seed, n, s, d, C, table):  # the width of the input layer is n, not its fan-in d
    weights = []
    for place, W in zip(PLACES, draw(seed, n, s, d, C)):
        std = SIGMA[place] * float(len(W)) ** -table[place][1]
        weights.append(W * (std / np.sqrt(d) if place == "input" else std))
    return weights
