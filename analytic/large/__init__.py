"""Compute kernels block by block, and solve kernel regression even if the kernel or its factor does not fit in memory.

Reading order:

    gram         the training set's kernel in panels of rows, read from disk or computed on demand
    factor       the kernel's Cholesky factor, block by block, in memory or on disk
    landmarks    the Nystrom system of M of the N examples, as a matrix-vector product
    solve        the public function: preconditioned conjugate gradients until the residual is small enough
"""
