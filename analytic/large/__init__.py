"""Solve kernel regression whose kernel or factor does not fit into memory.

Reading order:

    gram         reads the training set's kernel by panels of rows, from disk or computed when needed
    factor       its Cholesky factor, block by block, in memory or on disk
    landmarks    the Nystrom system of M of the N examples, as a product with vectors
    solve        the public function: conjugate gradients to a given residual, preconditioned by either
"""
