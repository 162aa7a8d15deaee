"""Compute kernels of fully connected networks.  The steps of `analytic.recursion` propagate one angle per pair.

Reading order:

    plan          propagates pairs from the first layer to the kernels' entries
    engine        computes tiles of the Gram matrix, on all cores
    derivatives   differentiates with respect to log w_std and log b_std
"""
