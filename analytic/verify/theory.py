"""The predictions of infinite-width theory for a problem; the only file in this folder that imports `analytic`.

Everything is for full-batch gradient descent at a finite learning rate: Lee et al. 2019 with (I - lr Theta / N)^t in
place of e^(-lr Theta t / N), so the comparison holds for any step size.  All arrays are float64 NumPy arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analytic.kernels import kernel
from analytic.training.dynamics import gradient_descent
from analytic.training.dynamics import max_learning_rate as max_learning_rate
from analytic.training.gp import Ensemble, Kind, ensemble
from minintk import spec as s
from minintk.arrays import Host


@dataclass(frozen=True, eq=False, repr=False)
class Theory:
    """The two kernels on all points, the training set first.

    nngp, ntk : (A, A).  y : (N, 1).  lr : the learning rate.
    """

    nngp: Host
    ntk: Host
    y: Host
    lr: float

    @cached_property
    def ensemble(self) -> Ensemble:
        """The infinitely wide networks of these kernels, trained by gradient descent."""
        train = np.arange(len(self.y))
        return ensemble((self.nngp, self.ntk), train, self.y, lr=self.lr, by="descent")

    def moments(self, steps: Host, kind: Kind = "ntk") -> tuple[Host, Host]:
        """Mean (T, A) and covariance (T, A, A) of the ensemble on all points after `steps` steps, eqs. (14), (15).

        steps : (T,), whole numbers.  kind="nngp" : of networks whose last layer alone is trained (supplement).
        """
        mean, cov = self.ensemble.predict(np.arange(len(self.ntk)), steps, kind=kind, cov=True)
        return mean[..., 0], cov


def kernels(spec: s.Sequential, x: Host) -> tuple[Host, Host]:
    """(K, Theta) of the infinitely wide network, (A, A) each."""
    return kernel(spec).both(x)


def descend(ntk: Host, y: Host, f0: Host, steps: Host, lr: float) -> Host:
    """f_t on all points, (T, A), of one network with a constant tangent kernel, eqs. (9) to (11).

    ntk : (A, N), all points against the training set, which comes first.  y : (N, 1).  f0 : (A,), the initial outputs.
    """
    N = len(y)
    return gradient_descent(ntk[:N], y, lr=lr).predict(steps, ntk, f0=f0[:N, None], f0_test=f0[:, None])[..., 0]
