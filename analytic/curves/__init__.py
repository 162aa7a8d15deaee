"""Compute learning curves: the test loss of random-feature models against steps, parameters and examples.

Reading order:

    spectra     eigenvalues of kernels on the sphere, on the cube and for data, and the error after n examples
    equivalent  the loss of random-feature models as a function of two Laplace variables, by deterministic equivalents
    contours    integrals around a spectrum: inverse Laplace transforms, and powers of a step's operator
    curve       `learning_curve`: gradient flow and ridge regression from a spectrum
    sgd         one-pass SGD by a Volterra equation
    transport   `predict_loss`: the loss for another number of examples, from the kernel and targets of a sample
    powers      power laws: their spectra, exponents and phases, and the best width for a budget of compute
"""
