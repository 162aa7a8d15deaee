# refused by: activation, activation backward
# variant: activation = relu


def activate(z):
    return np.maximum(z, 0, out=z), z
