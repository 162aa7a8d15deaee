"""Compute kernels of fully connected networks: one angle per pair of inputs, using the steps of `analytic.recursion`.

Reading order:

    plan          carries pairs from the first layer to the kernels' entries
    engine        tiles of the Gram matrix, on all cores
    derivatives   differences with respect to log w_std and log b_std
"""
