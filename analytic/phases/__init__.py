"""Phases of deep networks: the effect of a block of layers, repeated many times, on variances, angles and gradients.

Reading order:

    block     which layers repeat, as steps of the kernels' recursion
    maps      one block as a map of variance, angle and tangent kernel
    phase     `phase`: fixed points, slopes and depth scales of these maps
    critical  `critical`: weights and biases at the edge of chaos
"""
