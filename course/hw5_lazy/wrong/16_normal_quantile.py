# refused by: fit, study


from scipy.special import ndtri


def stdtrit(df, p):  # a handful of seeds scatter more than the normal distribution says
    return ndtri(p)
