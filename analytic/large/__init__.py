"""Solve kernel regression when the kernel or its factor does not fit into memory.

Reading order:

    gram         panels of rows of the training set's kernel, read from disk or computed when needed
    factor       the kernel's Cholesky factor, block by block, in memory or on disk
    landmarks    the Nystrom system of M of the N examples, as a matrix-vector product
    solve        the public function: preconditioned conjugate gradients until the residual is small enough
"""
