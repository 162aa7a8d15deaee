"""The predictions of infinite-width theory for a problem; the only file in this folder that imports `analytic`.

Everything is for full-batch gradient descent at a finite learning rate: Lee et al. 2019 with (I - lr Theta / N)^t in
place of e^(-lr Theta t / N), so the comparison holds for any step size.  All arrays are float64 NumPy arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from analytic.kernel import kernel
from analytic.limits.nonlinear import feature_learning_limit
from analytic.limits.width_correction import width_correction
from analytic.training.dynamics import gradient_descent
from analytic.training.dynamics import max_learning_rate as max_learning_rate
from minintk import spec as s

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False, repr=False)
class Theory:
    """The two kernels on all points, the training set first.

    nngp, ntk : (A, A).  y : (N, 1).  lr : the learning rate.
    """

    nngp: Array
    ntk: Array
    y: Array
    lr: float

    def moments(self, steps: Array) -> tuple[Array, Array]:
        """Mean (T, A) and covariance (T, A, A) of the ensemble on all points after t = `steps` steps, eqs. (14), (15):

            A_t = Theta(x, X) Theta^-1 (I - (I - lr Theta / N)^t)
            mean = A_t y,    cov = K(x, x') + A_t K(X, X) A_t' - (A_t K(X, x') + transpose)

        steps : (T,), whole numbers.
        """
        A = self._weights(self.ntk, steps)
        N = len(self.y)
        AK = A @ self.nngp[:N]
        cov = self.nngp + A @ self.nngp[:N, :N] @ A.swapaxes(-1, -2) - AK - AK.swapaxes(-1, -2)
        return (A @ self.y)[..., 0], cov

    def moments_of_last_layer(self, steps: Array) -> tuple[Array, Array]:
        """The same if only the last layer is trained (supplement of the paper):

            mean = A_t y,    cov = K(x, x') - A_2t K(X, x'),    A_t = K(x, X) K^-1 (I - (I - lr K / N)^t)

        steps : (T,), whole numbers.
        """
        A, A2 = self._weights(self.nngp, steps), self._weights(self.nngp, 2 * steps)
        return (A @ self.y)[..., 0], self.nngp - A2 @ self.nngp[: len(self.y)]

    def _weights(self, k: Array, steps: Array) -> Array:
        """A_t, (T, A, N): the outputs of a network that starts at 0 and learns the N unit vectors as targets."""
        N = len(self.y)
        return np.asarray(gradient_descent(k[:N, :N], np.eye(N), lr=self.lr).predict(steps, k[:, :N]))


def kernels(spec: s.Sequential, x: Array) -> tuple[Array, Array]:
    """(K, Theta) of the infinitely wide network, (A, A) each."""
    nngp, ntk = kernel(spec).both(x)
    return np.asarray(nngp), np.asarray(ntk)


def descend(ntk: Array, y: Array, f0: Array, steps: Array, lr: float) -> Array:
    """f_t on all points, (T, A), of one network with a constant tangent kernel, eqs. (9) to (11).

    ntk : (A, N), all points against the training set, which comes first.  y : (N, 1).  f0 : (A,), the initial outputs.
    """
    N = len(y)
    return gradient_descent(ntk[:N], y, lr=lr).predict(steps, ntk, f0=f0[:N, None], f0_test=f0[:, None])[..., 0]


def mean_at_width(spec: s.Sequential, x: Array, y: Array, x_test: Array, t: float, rng: Any) -> tuple[float, ...]:
    """(infinite width, the correction at the widths of the spec, its standard error) of the mean of f(x_test[0])."""
    found = width_correction(spec, x, y, x_test, rng=rng).predict(t)
    return tuple(float(a[0, 0]) for a in found)


def feature_learning(spec: s.Sequential, x: Array, y: Array, **how: Any) -> Array:
    """f : (N,), after the last step in the limit in which features move, at gamma0 = 1."""
    return np.asarray(feature_learning_limit(spec, x, y, gamma0=1.0, samples=2**16, **how).f[-1, :, 0])
