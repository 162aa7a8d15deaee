"""Make the experiment's data: 400 of the library's handwritten digits, 8 x 8 pixels each."""

import numpy as np

import minintk as mn

SIZES, DRAWS = (10, 20, 40, 80, 160), 8


def problem(seed):
    """Return (x, y, sizes, draws, seed) for learning_curve: x on the sphere |x|^2 = d, y of ten columns."""
    digits = mn.datasets.digits().on_sphere().flat().subset(400, np.random.default_rng(seed))
    x, y = digits.one_hot(zero_mean=True)
    return x, y, SIZES, DRAWS, seed
