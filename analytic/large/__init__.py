"""Solve kernel regression if the kernel or its factor does not fit into memory.

Reading order:

    gram         reads the training set's kernel by panels of rows, from disk or computed when needed
    factor       the kernel's Cholesky factor, block by block, in memory or on disk
    landmarks    the Nystrom system of M of the N examples, as a matrix-vector product
    solve        the public function: conjugate gradients to a given residual, preconditioned by the factor or landmarks
"""
