# refused by: initial weights, coordinate check, transfer, measurement


def initial(seed, n, s, d, C, table):
    normals = draw(seed, n, s, d, C)
    return [W * SIGMA[place] * float(n) ** -table[place][1] for place, W in zip(PLACES, normals)]
