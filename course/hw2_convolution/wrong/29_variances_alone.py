# refused by: measurement
# variant: layout = NHWC


def channel_noise(x, widths, draws, seed):
    found = []
    for n in widths:
        for s in range(draws):
            rng, q = np.random.default_rng([seed, n, s]), []
            for _ in range(2):
                h, _ = conv(x, rng.standard_normal((3, 3, x.shape[3], n)), np.zeros(n), 1, 1)
                q.append(np.mean(np.maximum(h[0], 0) ** 2, axis=-1))
            found.append(2 * np.linalg.norm(q[0] - q[1]) / np.linalg.norm(q[0] + q[1]))
    return np.reshape(found, (len(widths), draws))
