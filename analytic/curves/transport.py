"""Predict the test loss for another number of examples, without fitting, from the kernel and targets of one sample.

Let mu_i be the eigenvalues of the kernel of n examples, b = Q'y the targets in its eigenbasis, and w_i = 1/(mu_i +
delta).  At ridge delta, the sample gives the quantities of `analytic.curves.equivalent` as

    kappa = 1 / sum w            p = sum L_k^2 = n - (sum w)^2 / sum w^2        q0 + sigma2 = sum b^2 w^2 / sum w^2

N examples have the same kappa, and therefore the same p and q0, at another ridge.  This ridge and the loss are

    ridge = delta + (N - n) kappa            E(N, ridge) = (q0 + sigma2) / (1 - p / N)

N = n gives generalised cross-validation (Golub, Heath and Wahba 1979; Jacot et al. 2020 for kernels).  `predict_loss`
raises ValueError if kappa < 1 / sum 1/mu, because n examples do not resolve so small a kappa (docs/learning-curves.md).
"""

from __future__ import annotations

import numpy as np

from analytic.curves.spectra import data_modes
from minintk.arrays import Array
from minintk.validate import number, whole


def predict_loss(kernel: Array, y: Array, *, examples: int, ridge: float) -> float:
    """Return the test loss E |f(x) - y|^2 of regression with k + ridge I on `examples` examples.

    kernel : (n, n), the sample's kernel matrix.  y : (n, C), the sample's targets with noise.  The prediction has
    sampling noise and, like that of `eigenlearning`, an error of order 1/n.  Raises ValueError if ridge < (examples -
    n) / sum 1/mu, because the sample then does not resolve kappa.  In this case, use a larger sample or more ridge.

    >>> import minintk as mn
    >>> x = np.random.default_rng(0).standard_normal((400, 20)) / 20**0.5
    >>> y = x[:, :1]                            # kernel x.x', lambda = 1/20: 1/20 (20 kappa)^2 / (1 + 20 kappa)^2
    >>> round(predict_loss(x @ x.T + 1e-3 * np.eye(400), y, examples=1600, ridge=80.0), 4)
    0.0127
    """
    from scipy.optimize import brentq

    (modes, power), N, ridge = data_modes(kernel, y), whole("examples", examples), number("ridge", ridge, zero=True)
    n = len(power)
    mu, b2 = n * modes.eigenvalue, n * power

    def ridge_of(delta: float) -> float:
        return float(delta + (N - n) / np.sum(1 / (mu + delta)))

    least = 1e-14 * float(mu.max())
    if ridge < ridge_of(least):
        raise ValueError(
            f"ridge expects at least {ridge_of(least):.4g} for {N} examples, below which {n} examples do not resolve "
            f"the loss, got {ridge:g}: take a larger sample, or more ridge"
        )
    high = (ridge + float(mu.sum())) * max(1.0, n / N)
    delta = brentq(lambda u: ridge_of(np.exp(u)) - ridge, np.log(least), np.log(high), xtol=1e-14, rtol=1e-14)
    w = 1 / (mu + np.exp(delta))
    p = n - w.sum() ** 2 / (w @ w)
    return float(b2 @ w**2 / (w @ w) / (1 - p / N))
