"""The recursion on images, over pairs of pixels.  Importing the room registers its rules.

Reading order:

    rules          what convolutions, pooling and flattening do to the covariances of pixels
    fields         what is carried: a variance for every pixel, a distance for every pair of pixels
    pixel_pairs    which pairs a field holds, and how windows act on them
    window_sums    sums over windows as a few shifted sums
    steps          how linear steps act on a field
    attention      sums over positions by weights that each image has of its own
    activations    how activations and normalisations act on a field
    precision      which scale and precision images are followed in, and which are out of range
    plan           which pairs of pixels are followed, in what precision, and which steps offset by offset
    engine         pairs of images, one or a few at a time, through all layers
    memory         where a field's numbers are, and the arrays that a thread reuses for them
"""

from analytic.images import activations, attention, rules, steps
