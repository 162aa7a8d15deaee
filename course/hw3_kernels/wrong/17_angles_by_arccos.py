# refused by: near-parallel


def angles(x1, x2):
    c = x1 @ x2.T / np.linalg.norm(x1, axis=1)[:, None] / np.linalg.norm(x2, axis=1)
    return np.arccos(np.clip(c, -1, 1))
