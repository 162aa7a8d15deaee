# refused by: dual on hard inputs, kernels on hard inputs, measurement
# variant: activation = relu


def moments(K, q, q_prime):
    norm = np.sqrt(q * q_prime)
    with np.errstate(invalid="ignore"):
        a = np.arccos(K / np.where(norm > 0, norm, 1))
    T = norm * (np.sin(a) + (np.pi - a) * np.cos(a)) / (2 * np.pi)
    return T, np.where(norm > 0, np.pi - a, 0) / (2 * np.pi)
