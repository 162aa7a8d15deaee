# refused by: tangent kernel, measurement


def tangent_kernel(x, W, a):
    features = phi(x @ W / np.sqrt(len(W)))
    return features @ features.T / len(a)
