"""analytic: infinitely wide networks, their kernels, training dynamics and Gaussian processes.

Reading order:

    textbook     the recursion as the papers print it, in plain NumPy
    recursion    the steps that layers become
    vectors      the recursion for fully connected networks
    images       the recursion over pairs of pixels
    kernels      the public interface: `kernel(spec)`
    training     closed-form training, Gaussian processes
    large        kernels on disk and in other processes, and regression with kernels that do not fit into memory
    limits       moving features, finite width
    curves       eigenvalues, and the test loss that they predict for given steps, parameters and examples
    phases       deep networks: fixed points, depth scales, critical initialisations
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # names and modules are in __init__.pyi
