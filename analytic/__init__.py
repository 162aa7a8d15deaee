"""analytic: the infinitely wide network of a spec; its kernels, their dynamics and their Gaussian processes.

Reading order:

    textbook     the recursion as the papers print it, in plain NumPy
    vectors      the same for fully connected networks, exact and fast
    images       the same over pairs of pixels
    streaming    kernels on disk, and in other processes
    kernel       the front: `kernel(spec)`
    training     closed-form training, Gaussian processes
    large        regression with kernels that do not fit into memory
    limits       moving features, finite width
    spectra      eigenvalues, and what they predict
"""

from typing import Any

from analytic import textbook
from analytic.kernel import Both, Kernel, kernel
from analytic.large.solve import solve
from analytic.limits.deep_linear import deep_linear_limit
from analytic.limits.finite_width import depth_over_width, finite_width
from analytic.limits.nonlinear import feature_learning_limit
from analytic.limits.two_layer import two_layer_limit
from analytic.limits.width_correction import width_correction
from analytic.spectra import Modes, cube_modes, data_modes, eigenlearning, sphere_modes
from analytic.training.dynamics import critical_learning_rate, gradient_descent, gradient_flow, max_learning_rate
from analytic.training.gp import ensemble
from analytic.training.posterior import posterior
from analytic.vectors.rules import lower
from analytic.vectors.textbook_dual import register_dual

__all__ = [
    "Both", "Kernel", "Modes", "critical_learning_rate", "cube_modes", "data_modes",
    "deep_linear_limit", "depth_over_width", "eigenlearning", "ensemble",
    "feature_learning_limit", "finite_width", "gradient_descent", "gradient_flow", "kernel", "lower",
    "max_learning_rate", "posterior", "register_dual", "solve", "sphere_modes", "textbook", "two_layer_limit",
    "width_correction",
]  # fmt: skip

ESTIMATORS = ("NTKClassifier", "NTKRegressor", "NNGPRegressor", "NetworkKernel")


def __getattr__(name: str) -> Any:
    """The estimators, which import scikit-learn."""
    if name not in ESTIMATORS:
        raise AttributeError(f"module 'analytic' has no attribute {name!r}")
    try:
        from analytic import estimators
    except ImportError as error:
        raise ImportError(f"analytic.{name} needs scikit-learn: pip install minintk[sklearn]") from error
    return getattr(estimators, name)
