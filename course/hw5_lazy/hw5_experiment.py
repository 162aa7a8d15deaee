"""Prepare the data: twelve handwritten digits, reduced to eight principal components, labelled even or odd."""

import numpy as np

import minintk as mn

WIDTHS, SEEDS, STEPS = (64, 256, 1024), 6, 60


def problem(seed, loss):
    """Return the arguments (x, y, widths, seeds, lr, steps, seed) of movement, with lr for your variant's loss."""
    x, y = mn.datasets.digits().pca(8).on_sphere().subset(12, np.random.default_rng(seed)).parity()
    return x, y[:, 0], WIDTHS, SEEDS, 1.0 if loss == "mean" else 1 / 12, STEPS, seed
