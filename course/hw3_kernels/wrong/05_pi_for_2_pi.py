# refused by: dual, dual on hard inputs, kernels, kernels on hard inputs, deep, experiment, measurement
# variant: activation = relu


def moments(K, q, q_prime):
    norm = np.sqrt(q * q_prime)
    a = np.arccos(np.clip(K / np.where(norm > 0, norm, 1), -1, 1))
    return norm * (np.sin(a) + (np.pi - a) * np.cos(a)) / np.pi, np.where(norm > 0, np.pi - a, 0) / np.pi
