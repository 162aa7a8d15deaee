"""analytic: infinitely wide networks, their kernels, training dynamics and Gaussian processes.

Reading order:

    textbook     the recursion as the papers print it, in plain NumPy
    vectors      the recursion for fully connected networks, exact and fast
    images       the recursion over pairs of pixels
    streaming    kernels on disk and in other processes
    kernel       the public interface: `kernel(spec)`
    training     closed-form training, Gaussian processes
    large        regression with kernels that do not fit into memory
    limits       moving features, finite width
    curves       eigenvalues, and what they predict: test loss against steps, parameters and examples
    phases       deep networks: fixed points, depth scales, critical initialisations
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # names and modules are in __init__.pyi
