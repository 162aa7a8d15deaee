# refused by: cross-entropy, cross-entropy backward, gradients, gradients in parts, training


LOSS = "sum" if LOSS == "mean" else "mean"
