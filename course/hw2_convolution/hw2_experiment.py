"""Make the experiment's data: one random image of 6 x 6 pixels and 3 channels."""

import numpy as np

WIDTHS, DRAWS = (32, 64, 128, 256, 512), 8


def problem(seed, layout):
    """Return (x, widths, draws, seed), the arguments of channel_noise; layout: that of your variant."""
    x = np.random.default_rng(seed).standard_normal((1, 6, 6, 3))
    return x.transpose(["NHWC".index(axis) for axis in layout]).copy(), WIDTHS, DRAWS, seed
