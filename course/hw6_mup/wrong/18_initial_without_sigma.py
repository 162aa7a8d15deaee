# refused by: initial weights, coordinate check, transfer, measurement


SIGMA = dict.fromkeys(PLACES, 1.0)
