"""Solve kernel regression if the kernel or its factor does not fit into memory.

Reading order:

    gram         the kernel of the training set by panels of rows, from disk or computed when needed
    factor       its Cholesky factor, block by block, in memory or on disk
    landmarks    the Nystrom system of M examples for all N, as a product with vectors
    solve        the front: conjugate gradients until a stated residual, with either as preconditioner
"""
