# refused by: training, deviation, measure, study


right = train


def train(x, y, W, a, lr, steps):
    return right(*(some.astype(np.float32) for some in (x, y, W, a)), lr, steps).astype(np.float64)
