# refused by: measurement


def own_kernel(x):
    K = 2 * x @ x.T / x.shape[1]
    size = np.sqrt(np.outer(K.diagonal(), K.diagonal()))
    angle = np.arccos(np.clip(K / size, -1, 1))
    return size / np.pi * (np.sin(angle) + (np.pi - angle) * np.cos(angle))
