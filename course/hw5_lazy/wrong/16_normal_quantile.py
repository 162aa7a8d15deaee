# refused by: fit, study


from scipy.special import ndtri


def stdtrit(df, p):  # too small for few seeds: their t statistic has wider tails
    return ndtri(p)
