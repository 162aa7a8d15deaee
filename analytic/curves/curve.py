"""Compute the test loss of random-feature models with n parameters, and of kernel regression, trained on N examples:

    loss(t) = (1 / 2 pi i)^2 int int e^{(s + s') t} E(s, s') / (s s') ds ds'         gradient flow
    loss    = E(ridge / N, ridge / N)                                  ridge regression; ridge -> 0 is t -> infinity

`analytic.curves.equivalent` computes the deterministic equivalent E(s, s').  n = inf gives kernel regression.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf
from typing import Any

import numpy as np

from analytic.curves import contours, sgd
from analytic.curves.equivalent import Equivalent
from analytic.curves.spectra import Modes, check_modes
from minintk.arrays import Host
from minintk.validate import number, numbers, times, whole


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Test losses E (f(x) - y)^2, which include the noise of new labels; built by `learning_curve`."""

    equivalent: Equivalent

    def flow(self, t: Any) -> Host:
        """Return the test loss of gradient flow on the training loss, started at f = 0, at times t : () or (T,).

        Gradient descent at rate lr has nearly this loss at t = lr * steps if lr lambda << 1 for every eigenvalue
        lambda.  At t = inf, the loss is ridge(0).  Raises ValueError unless t is a number >= 0 or a 1-D array of them.
        """
        axis = times(t)
        return np.array([self._at(float(one)) for one in axis.ravel()]).reshape(axis.shape)

    def ridge(self, ridge: float = 0.0) -> float:
        """Return the test loss of regression with k + ridge I, as in `eigenlearning`.  `ridge()` equals `flow(inf)`.

        Without ridge, inf for width = examples < modes.  Raises ValueError for ridge < 0, or > 0 with examples=inf.
        """
        ridge, e = number("ridge", ridge, zero=True), self.equivalent
        if ridge and isinf(e.N):
            raise ValueError(f"ridge expects finite examples=, got ridge = {ridge!r} with examples = inf: pass ridge=0")
        if isinf(e.N) and isinf(e.n):
            return float(e.v2[e.lam == 0].sum()) + e.sigma2
        if not ridge and e.n == e.N < float(e.h[e.lam > 0].sum()) + (inf if e.rest else 0):
            return inf
        kappa = np.array([e.start(ridge / e.N if ridge else max(1e-300, 1e-16 * float(e.lam[e.lam > 0].min())))])
        return float(e.error(kappa, kappa)[0, 0])

    def sgd(self, steps: Any, lr: float, *, batch: int = 1) -> Host:
        """Return the test loss of one-pass SGD after `steps` steps, () or (T,), with `batch` new examples per step.

            loss(T) = F(T) + (lr^2 / batch) sum_{u < T} K(T - 1 - u) loss(u)          (Paquette et al. 2024)
            F(T) = sum_j v_j^2 q_j^T + noise,    K(T) = sum_j z_j^2 q_j^T
            q_j = 1 - 2 lr z_j + lr^2 (1 + 1/batch) z_j^2,    z_j eigenvalues of A = Lambda^1/2 W W' Lambda^1/2

        For Gaussian inputs and a given W, loss(T) is the exact mean over examples.  For finite width, the sums over j
        are approximate.  Raises ValueError for finite `examples`, too large an lr, or steps not in 0, 1, ..., 10^6.
        """
        if not isinf(self.equivalent.N):
            raise ValueError(
                f"sgd is one-pass and expects examples=inf, got {self.equivalent.N:g}: it sees steps x batch"
            )
        axis = times(steps, finite=True)
        if np.any(axis != axis.round()) or np.any(axis > 1e6):
            raise ValueError(f"steps expect whole numbers from 0 to 1000000, got {steps!r}")
        lr, batch = number("lr", lr), whole("batch", batch)
        return np.asarray(sgd.loss(self.equivalent, int(axis.max(initial=0)), lr, batch)[axis.astype(int)])

    def _at(self, t: float) -> float:
        e = self.equivalent
        if t == 0:
            return float(e.v2.sum()) + e.sigma2
        if isinf(t):
            return self.ridge()
        if isinf(e.n) and isinf(e.N):
            return float(e.v2 @ np.exp(-2 * e.lam * t)) + e.sigma2
        s, weight = contours.laplace(t)
        tip = np.array([contours.NODES * (0.5017 / 0.6407 - 0.6122) / t])
        kappa, w = e.follow(np.concatenate([tip, s]))[1:], weight / s
        both, conj = np.concatenate([kappa, kappa.conj()]), np.concatenate([w, w.conj()])
        return float(2 * np.real(w @ e.error(kappa, both) @ conj))


def learning_curve(
    modes: Modes, power: Any, *, width: float = inf, examples: float = inf, noise: float = 0.0
) -> LearningCurve:
    """Return the learning curve of a random-feature model with `width` parameters, trained on `examples` examples.

        f(x) = sum_i theta_i sum_k W_ki lambda_k^1/2 phi_k(x),    W_ki ~ N(0, 1/width),    theta(0) = 0
        width = inf: the kernel sum_k lambda_k phi_k(x) phi_k(x') itself

    modes : a spectrum from `sphere_modes`, `cube_modes`, `data_modes` or `power_law`.  power : (K,), for a target
    sum_k v_k phi_k, the sum of v_k^2 over each level.  noise : the variance of the noise in training and test labels.

    For Gaussian phi_k, the formulas hold for large width and many examples, up to corrections of order 1/width and
    1/examples.  For other phi_k, they are approximate.  For width = inf, `ridge` gives the loss of `eigenlearning`.
    Lazy networks differ from this model: they have one feature per weight, and these features are dependent.  Raises
    ValueError unless power and noise are >= 0, width and examples are integers >= 1 or inf, and the largest lambda is
    from 1e-100 to 1e100.  Sources: Bordelon et al. 2024 (flow), Paquette et al. 2024 (SGD), Simon et al. 2023 (ridge).

    >>> from analytic import power_law
    >>> modes, power = power_law(1.5, 1.8, count=10_000)
    >>> curve = learning_curve(modes, power, width=100, examples=400)
    >>> curve.flow([0, 10, 1000]).round(4), round(curve.ridge(1.0), 4)
    (array([1.8814, 0.266 , 0.1233]), 0.1211)
    """
    lam, h, rest = check_modes(modes)
    v2 = np.array(numbers(power), dtype=np.float64)
    if v2.shape != lam.shape or not (np.all(v2 >= 0) and np.all(np.isfinite(v2))):
        raise ValueError(f"power expects a finite number >= 0 for each of {len(lam)} levels, got {power!r}")
    if not 1e-100 <= (top := float(lam.max())) <= 1e100:  # the formulas square eigenvalues and their inverses
        raise ValueError(f"modes expect a largest eigenvalue from 1e-100 to 1e100, got {top!r}: rescale the kernel")
    n = inf if width == inf else whole("width", width)
    N = inf if examples == inf else whole("examples", examples)
    return LearningCurve(Equivalent(lam, h, v2, rest, n, N, number("noise", noise, zero=True)))
