"""List the package's public names and their modules; `__init__` reads this file and imports each on first use."""

from . import textbook
from .curves.curve import learning_curve
from .curves.powers import compute_optimal, exponents, power_law
from .curves.spectra import Modes, cube_modes, data_modes, eigenlearning, sphere_modes
from .curves.transport import predict_loss
from .kernels import Both, Kernel, kernel
from .large.estimators import NetworkKernel, NNGPClassifier, NNGPRegressor, NTKClassifier, NTKRegressor
from .large.solve import solve
from .limits.deep_linear import deep_linear_limit
from .limits.finite_width import depth_over_width, finite_width
from .limits.nonlinear import feature_learning_limit
from .limits.two_layer import two_layer_limit
from .limits.width_correction import width_correction
from .phases.critical import critical
from .phases.phase import phase
from .recursion.rules import lower
from .recursion.textbook_dual import register_dual
from .training.dynamics import critical_learning_rate, gradient_descent, gradient_flow, max_learning_rate
from .training.gp import ensemble
from .training.posterior import posterior

__all__ = [
    "Both", "Kernel", "Modes", "NNGPClassifier", "NNGPRegressor", "NTKClassifier", "NTKRegressor", "NetworkKernel",
    "compute_optimal", "critical", "critical_learning_rate", "cube_modes", "data_modes", "deep_linear_limit",
    "depth_over_width", "eigenlearning", "ensemble", "exponents", "feature_learning_limit", "finite_width",
    "gradient_descent", "gradient_flow", "kernel", "learning_curve", "lower", "max_learning_rate", "phase",
    "posterior", "power_law", "predict_loss", "register_dual", "solve", "sphere_modes", "textbook",
    "two_layer_limit", "width_correction",
]  # fmt: skip
