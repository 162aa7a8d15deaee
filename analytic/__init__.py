"""analytic: the infinitely wide network of a spec; its kernels, their dynamics and their Gaussian processes."""

from analytic.angular import Angular, angular
from analytic.dmft import deep_linear_flow, deep_linear_limit
from analytic.dynamics import critical_learning_rate, gradient_descent, gradient_flow, max_learning_rate
from analytic.fluctuations import depth_over_width, finite_width
from analytic.gp import ensemble, posterior
from analytic.kernel import Both, Kernel, kernel
from analytic.learnability import eigenlearning
from analytic.limits import two_layer_limit
from analytic.modes import Modes, cube_modes, data_modes, sphere_modes
from analytic.rules import lower

__all__ = [
    "Angular",
    "Both",
    "Kernel",
    "Modes",
    "angular",
    "critical_learning_rate",
    "cube_modes",
    "data_modes",
    "deep_linear_flow",
    "deep_linear_limit",
    "depth_over_width",
    "eigenlearning",
    "ensemble",
    "finite_width",
    "gradient_descent",
    "gradient_flow",
    "kernel",
    "lower",
    "max_learning_rate",
    "posterior",
    "sphere_modes",
    "two_layer_limit",
]
