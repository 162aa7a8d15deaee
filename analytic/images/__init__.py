"""Compute kernels of networks on images from pairs of pixels.  Importing this package registers the layers' rules.

Reading order:

    rules          convolutions, pooling and flattening of pixel covariances
    fields         the variance of every pixel, and the distance of every pair of pixels
    pixel_pairs    the pairs that a field contains, and window sums over the pairs
    window_sums    sums over windows, as a few shifted sums
    steps          linear steps on a field
    attention      sums over positions, weighted by each image's attention
    activations    activations and normalisations on a field
    precision      scale and precision of images, and their range
    plan           the pixel pairs to compute, the precision, and the steps that run offset by offset
    engine         all layers for one or a few pairs of images at a time
    memory         the memory layout of fields, and the arrays that a thread reuses for them
"""

from analytic.images import activations, attention, rules, steps
