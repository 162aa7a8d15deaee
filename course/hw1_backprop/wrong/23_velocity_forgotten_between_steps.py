# refused by: training


def train(x, labels, params, lr, momentum, steps):
    losses = []
    for _ in range(steps):
        loss, grads = gradients(x, labels, params)
        losses.append(loss)
        params = [sgd(p, g, np.zeros_like(p), lr, momentum)[0] for p, g in zip(params, grads)]
    return params, np.array(losses)
