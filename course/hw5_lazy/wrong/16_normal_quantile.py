# refused by: fit, study


from scipy.special import ndtri


def stdtrit(df, p):  # a handful of seeds scatter further than the normal distribution says
    return ndtri(p)
