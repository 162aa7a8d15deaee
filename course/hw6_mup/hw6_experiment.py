"""Prepare the experiment's data: twelve handwritten digits, labelled even or odd, and three tables.

In "NTK", the standard deviations do not depend on n, and a sum over n units has the multiplier n^-1/2. In "means", such
a sum is divided by n, and the rates let outputs move by an amount of order one. The third table is yours: muP.
"""

import numpy as np

import minintk as mn

WIDTHS, SEEDS, STEPS = (128, 256, 512), 6, 5

TABLES = {
    "sgd": {
        "NTK": {"input": (0, 0, 0), "hidden": (0.5, 0, 0), "output": (0.5, 0, 0)},
        "means": {"input": (0, 0, -1), "hidden": (1, 0, -2), "output": (1, 0, -1)},
    },
    "sign": {
        "NTK": {"input": (0, 0, 0.5), "hidden": (0.5, 0, 1), "output": (0.5, 0, 0.5)},
        "means": {"input": (0, 0, 0), "hidden": (1, 0, 0), "output": (1, 0, 0)},
    },
}


def problem(seed, optimizer, mup):
    """Return the arguments (x, y, widths, seeds, tables, lr, steps, seed) of feature_sizes.  mup : your own table()."""
    x, y = mn.datasets.digits().pca(8).on_sphere().subset(12, np.random.default_rng(seed)).parity()
    lr = 0.5 if optimizer == "sgd" else 0.02
    return x, y, WIDTHS, SEEDS, [*TABLES[optimizer].values(), mup], lr, STEPS, seed
