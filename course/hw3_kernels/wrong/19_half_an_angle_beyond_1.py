# refused by: near-parallel


def angles(x1, x2):
    u, v = x1 / np.linalg.norm(x1, axis=1)[:, None], x2 / np.linalg.norm(x2, axis=1)[:, None]
    half = np.linalg.norm(u[:, None] - v[None], axis=2) / 2
    with np.errstate(invalid="ignore"):
        return np.where(half < 1, 2 * np.arcsin(np.minimum(half, 1)), np.nan)
