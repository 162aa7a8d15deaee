"""Prepare the experiment's data: 400 of the library's handwritten digits, 8 x 8 pixels each."""

import numpy as np

import minintk as mn

SIZES, DRAWS = (10, 20, 40, 80, 160), 8


def problem(seed):
    """Return the arguments (x, y, sizes, draws, seed) of learning_curve; |x|^2 = d, and y has ten columns."""
    digits = mn.datasets.digits().on_sphere().flat().subset(400, np.random.default_rng(seed))
    x, y = digits.one_hot(zero_mean=True)
    return x, y, SIZES, DRAWS, seed
