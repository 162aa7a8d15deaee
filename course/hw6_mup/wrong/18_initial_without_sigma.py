# refused by: initial weights, coordinate check, transfer


SIGMA = dict.fromkeys(PLACES, 1.0)
