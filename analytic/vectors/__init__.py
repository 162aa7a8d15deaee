"""Compute kernels of fully connected networks: one angle per pair of inputs, by the steps of `analytic.recursion`.

Reading order:

    plan          pairs from the first layer to the kernels' entries
    engine        tiles of the Gram matrix, on all cores
    derivatives   differences in the logarithms of w_std and b_std
"""
