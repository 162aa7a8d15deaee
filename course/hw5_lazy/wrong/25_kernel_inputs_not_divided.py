# refused by: tangent kernel, measurement


def tangent_kernel(x, W, a):
    z = x @ W / np.sqrt(len(W))
    return (phi(z) @ phi(z).T + (x @ x.T) * ((slope(z) * a) @ (slope(z) * a).T)) / len(a)
