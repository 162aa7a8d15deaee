# refused by: f_lin, linearised training, deviation, measure, study


def f_lin(x, W0, a0, W, a):
    return outputs(x, W0, a0) + jvp(x, W, a, W - W0, a - a0)
