# refused by: network, gradients, gradients in parts, training, measurement


def network(x, params):
    caches = []
    for i in range(0, len(params), 2):
        x, cache = dense(x, params[i], params[i + 1])
        caches.append(cache)
        x, cache = activate(x)
        caches.append(cache)
    return x, caches


def gradients(x, labels, params):
    z, caches = network(x, params)
    loss, cache = cross_entropy(z, labels)
    u, found = cross_entropy_backward(np.ones((), z.dtype), cache), []
    for i in range(len(caches) - 1, -1, -2):
        u = activate_backward(u, caches[i])
        u, dW, db = dense_backward(u, caches[i - 1])
        found = [dW, db, *found]
    return loss, found
