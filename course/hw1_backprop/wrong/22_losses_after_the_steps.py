# refused by: training


def train(x, labels, params, lr, momentum, steps):
    velocity, losses = [np.zeros_like(p) for p in params], []
    for _ in range(steps):
        _, grads = gradients(x, labels, params)
        moved = [sgd(p, g, v, lr, momentum) for p, g, v in zip(params, grads, velocity)]
        params, velocity = [p for p, _ in moved], [v for _, v in moved]
        losses.append(gradients(x, labels, params)[0])
    return params, np.array(losses)
