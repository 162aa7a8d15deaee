# refused by: singular, weights


def eigen(K):
    lam, V = np.linalg.eigh(K)
    return lam / (len(K) if LOSS == "mean" else 1), V


def gain(lam, t):
    with np.errstate(divide="ignore"):
        return 1 / lam if np.isinf(t) else np.where(lam > 0, -np.expm1(-lam * t) / np.where(lam > 0, lam, 1), t)
