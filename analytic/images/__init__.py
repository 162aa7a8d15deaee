"""Carry kernels through networks on images, over pairs of pixels.  Importing the room registers its rules.

Reading order:

    rules          convolutions, pooling and flattening of the covariances of pixels
    fields         a variance for every pixel, a distance for every pair of pixels
    pixel_pairs    the pairs that a field holds, and windows on them
    window_sums    sums over windows as a few shifted sums
    steps          linear steps on a field
    attention      sums over positions, with weights of each image
    activations    activations and normalisations on a field
    precision      scale and precision of images, and their range
    plan           which pairs of pixels are followed, in what precision, and which steps offset by offset
    engine         pairs of images, one or a few at a time, through all layers
    memory         the memory layout of a field, and the arrays that a thread reuses for them
"""

from analytic.images import activations, attention, rules, steps
