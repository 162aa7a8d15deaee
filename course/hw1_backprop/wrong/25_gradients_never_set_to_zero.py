# refused by: gradients, gradients in parts, training, measurement


_gradients, _total = gradients, {}


def gradients(x, labels, params):
    loss, found = _gradients(x, labels, params)
    for i, g in enumerate(found):
        _total[i, g.shape] = _total.get((i, g.shape), 0) + g
    return loss, [_total[i, g.shape] for i, g in enumerate(found)]
