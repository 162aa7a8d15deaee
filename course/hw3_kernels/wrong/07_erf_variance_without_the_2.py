# refused by: dual, dual on hard inputs, kernels, kernels on hard inputs, deep, experiment, measurement
# variant: activation = erf


def moments(K, q, q_prime):
    r = (1 + q) * (1 + q_prime)
    return 2 / np.pi * np.arcsin(K / np.sqrt(r)), 4 / np.pi / np.sqrt(r - K**2)
