# refused by: tangent kernel, measurement


def tangent_kernel(x, W, a):  # a^2 is 1 only on average
    z = x @ W / np.sqrt(len(W))
    return (phi(z) @ phi(z).T + (x @ x.T / len(W)) * (slope(z) @ slope(z).T)) / len(a)
