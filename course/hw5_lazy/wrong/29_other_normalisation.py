# refused by: training, linearised training, centred training, deviation, measure, study, law of scale, measurement


LOSS = "sum" if LOSS == "mean" else "mean"  # the loss of the neighbour's handout
