"""Train in closed form with a constant kernel from any source.

Reading order:

    eigen       one factorisation of the kernel, and its zero eigenvalues
    dynamics    gradient flow and gradient descent at any time
    gp          the ensemble of trained networks
    posterior   the Gaussian process conditioned on data
"""
