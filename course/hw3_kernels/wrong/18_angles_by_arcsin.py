# refused by: angles, near-parallel


def angles(x1, x2):
    c = x1 @ x2.T / np.linalg.norm(x1, axis=1)[:, None] / np.linalg.norm(x2, axis=1)
    return np.arcsin(np.sqrt(np.clip(1 - c**2, 0, 1)))
