"""Generate the experiment's data: one random image of 6 x 6 pixels and 3 channels."""

import numpy as np

WIDTHS, DRAWS = (32, 64, 128, 256, 512), 8


def problem(seed, layout):
    """Return the arguments (x, widths, draws, seed) of channel_noise, with x in your variant's layout."""
    x = np.random.default_rng(seed).standard_normal((1, 6, 6, 3))
    return x.transpose(["NHWC".index(axis) for axis in layout]).copy(), WIDTHS, DRAWS, seed
