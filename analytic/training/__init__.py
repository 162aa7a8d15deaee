"""Solve the training dynamics of any constant kernel in closed form.

Reading order:

    eigen       factorises the kernel once, and finds its zero eigenvalues
    dynamics    gradient flow and gradient descent at any time
    gp          the ensemble of trained networks
    posterior   the Gaussian process conditioned on data
"""
