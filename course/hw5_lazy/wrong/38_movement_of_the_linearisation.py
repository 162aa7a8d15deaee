# refused by: measurement


def movement(x, y, widths, seeds, lr, steps, seed):
    rate, found = lr / len(y) if LOSS == "mean" else lr, []
    for n in widths:
        for s in range(seeds):
            W0, a0 = draw(seed, n, s, x.shape[1])
            W, a, start = W0, a0, tangent_kernel(x, W0, a0)
            for _ in range(steps):
                dW, da = vjp(x, W0, a0, f_lin(x, W0, a0, W, a) - y)
                W, a = W - rate * dW, a - rate * da
            found.append(np.linalg.norm(tangent_kernel(x, W, a) - start) / np.linalg.norm(start))
    return np.reshape(found, (len(widths), seeds))
