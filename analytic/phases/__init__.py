"""Find phases of deep networks: what a block of layers, repeated many times, does to variances, angles and gradients.

Reading order:

    block     the layers that repeat, as steps of the kernels' recursion
    maps      a block as a map of variance, angle and tangent kernel
    phase     `phase`: fixed points, slopes and depth scales of these maps
    critical  `critical`: weights and biases at the edge of chaos
"""
