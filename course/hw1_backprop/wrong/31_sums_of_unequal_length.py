# refused by: measurement
# variant: loss = sum


def batch_noise(x, labels, params, batches, draws, seed):
    def vector(at):
        return np.concatenate([g.ravel() for g in gradients(x[at], labels[at], params)[1]])

    whole = vector(np.arange(len(x)))
    at = [[np.random.default_rng([seed, B, s]).integers(len(x), size=B) for s in range(draws)] for B in batches]
    return np.array([[np.linalg.norm(vector(i) - whole) for i in row] for row in at]) / np.linalg.norm(whole)
