"""Generate the experiment's data: three noisy classes in the plane, and a network with 16 hidden units."""

import numpy as np

BATCHES, DRAWS = (16, 32, 64, 128, 256, 512), 8


def problem(seed, weights):
    """Return the arguments (x, labels, params, batches, draws, seed) of batch_noise, for your variant's layout of W."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=400)
    centres = np.array([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])
    x = centres[labels] + 0.5 * rng.standard_normal((400, 2))
    W1, W2 = rng.standard_normal((2, 16)), rng.standard_normal((16, 3)) / 4
    if weights == "out_in":
        W1, W2 = W1.T.copy(), W2.T.copy()
    return x, labels, [W1, np.zeros(16), W2, np.zeros(3)], BATCHES, DRAWS, seed
