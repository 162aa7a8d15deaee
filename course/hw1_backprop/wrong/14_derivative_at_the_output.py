# refused by: activation backward, gradients, gradients in parts, weights used twice, training, measurement
# variant: activation = tanh | softplus


_activate = activate


def activate(z):
    a, _ = _activate(z)
    return a, a
