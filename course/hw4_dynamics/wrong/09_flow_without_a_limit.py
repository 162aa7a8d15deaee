# refused by: flow, singular, predict, weights, ensemble mean, ensemble covariance, measurement


def gain(lam, t):
    some = np.where(lam > 0, lam, 1.0)
    with np.errstate(invalid="ignore"):
        return np.where(lam > 0, -np.expm1(-lam * t) / some, t) if np.isfinite(t) else np.full_like(lam, np.nan)
