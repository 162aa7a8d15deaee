# refused by: dual, dual on hard inputs, kernels, kernels on hard inputs, deep, experiment, measurement
# variant: activation = erf


right = moments


def moments(K, q, q_prime):
    T, T_dot = right(K, q, q_prime)
    return T, T_dot / 2
