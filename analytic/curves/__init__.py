"""Compute learning curves: test loss of linear and random-feature models against steps, parameters and examples.

Reading order:

    spectra     eigenvalues of kernels on the sphere, the cube and data, and the error after N examples
    equivalent  the model's deterministic equivalent: kappa(s), and the loss as a function of two Laplace variables
    contours    integrals around a spectrum: inverse Laplace transforms, and powers of a step's operator
    curve       `learning_curve`: gradient flow and ridge from a spectrum
    sgd         one-pass SGD: a Volterra equation
    transport   `predict_loss`: the loss at other numbers of examples, from a sample's kernel and targets
    powers      power laws: spectra, exponents and phases; how to divide a budget between width and steps
"""
