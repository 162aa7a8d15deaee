"""analytic: the infinitely wide network of a spec; its kernels, their dynamics and their Gaussian processes."""

from analytic.angular import Angular, angular
from analytic.dmft import deep_linear_flow, deep_linear_limit
from analytic.dynamics import critical_learning_rate, gradient_descent, gradient_flow, max_learning_rate
from analytic.gp import ensemble, posterior
from analytic.kernel import Both, Kernel, kernel
from analytic.limits import two_layer_limit
from analytic.rules import lower

__all__ = [
    "Angular",
    "Both",
    "Kernel",
    "angular",
    "critical_learning_rate",
    "deep_linear_flow",
    "deep_linear_limit",
    "ensemble",
    "gradient_descent",
    "gradient_flow",
    "kernel",
    "lower",
    "max_learning_rate",
    "posterior",
    "two_layer_limit",
]
