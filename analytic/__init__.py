"""analytic: the infinitely wide network of a spec; its kernels, their dynamics and their Gaussian processes."""

from analytic.dynamics import critical_learning_rate, gradient_descent, gradient_flow, max_learning_rate
from analytic.gp import ensemble, posterior
from analytic.kernel import Both, Kernel, kernel
from analytic.rules import lower
