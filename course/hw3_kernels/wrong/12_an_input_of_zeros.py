# refused by: dual on hard inputs, kernels on hard inputs
# variant: activation = relu


def moments(K, q, q_prime):
    norm = np.sqrt(q * q_prime)
    with np.errstate(invalid="ignore"):
        a = np.arccos(np.clip(K / norm, -1, 1))
    return norm * (np.sin(a) + (np.pi - a) * np.cos(a)) / (2 * np.pi), (np.pi - a) / (2 * np.pi)
