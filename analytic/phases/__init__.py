"""Find phases of deep networks: the effect of a repeated block of layers on variances, angles and gradients.

Reading order:

    block     the layers that repeat, as steps of the kernels' recursion
    maps      a block as a map of variance, angle and tangent kernel
    phase     `phase`: fixed points, slopes and depth scales of these maps
    critical  `critical`: weights and biases at the edge of chaos
"""
