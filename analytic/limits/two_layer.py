"""Model feature learning in infinitely wide two-layer linear networks by a closed system of differential equations.

    f(x) = 1/(gamma0 n) sum_i a_i w_i . x~,    a_i = sigma_2 A_i : (C,),    w_i = sigma_1 W_i : (r,)

with A, W ~ N(0, 1); e, r and x~ (here in the basis B) are as in `analytic.limits.linear_problem`.  At rate gamma0^2 n,

    da_i/dt = gamma0 sigma_2^2 e' w_i,    dw_i/dt = gamma0 sigma_1^2 e a_i

All neurons obey the same linear equations, so their second moments obey a closed system of equations:

    F = E[w a'] / gamma0     dF/dt = sigma_2^2 S e + sigma_1^2 e Q               F_0 = 0               f(x) = x~ F
    S = E[w w']              dS/dt = gamma0^2 sigma_1^2 (e F' + F e')            S_0 = sigma_1^2 I
    Q = E[a a']              dQ/dt = gamma0^2 sigma_2^2 (e' F + F' e)            Q_0 = sigma_2^2 I

The equations contain gamma0 only as gamma0^2.  At gamma0 = 0, S and Q are constant, and dF/dt = 2 sigma_1^2 sigma_2^2 e
is gradient flow with the NTK.  For gamma0 > 0, tr S / sigma_1^2 - tr Q / sigma_2^2 is conserved, so its two terms
change by equal amounts.  (Bordelon and Pehlevan 2022 for gamma0; Saxe et al. 2014 for the linear network.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from analytic.limits.linear_problem import LinearProblem, integrated, linear_problem
from minintk import spec as s
from minintk.arrays import Array, Host
from minintk.validate import times

RTOL, ATOL = 1e-10, 1e-12
"""The solver's tolerance per step is RTOL |value| + ATOL min(1, w_std^2, max |y|) for each entry of F, S and Q."""


@dataclass(frozen=True, eq=False, repr=False)
class TwoLayerLimit:
    """Gradient flow of an infinitely wide two-layer linear network; built by `two_layer_limit`.  t = lr * steps."""

    problem: LinearProblem

    def moments(self, t: Any) -> tuple[Host, Host, Host]:
        """Return (F, S, Q) at times t, a number or (T,), on the host, with shapes (T, r, C), (T, r, r), (T, C, C).

        Raises ValueError unless times are finite and >= 0, and RuntimeError if the solver fails.
        """
        (r, C), (s1, s2) = self.problem.sizes, self.problem.w_std
        state = np.concatenate([np.zeros(r * C), s1**2 * np.eye(r).ravel(), s2**2 * np.eye(C).ravel()])
        atol = ATOL * max(1e-280, min(1.0, s1**2, s2**2, float(np.abs(self.problem.Y).max())))
        return self._split(integrated(self._rate, state, np.atleast_1d(times(t, finite=True)), RTOL, atol))

    def predict(self, t: Any, x_test: Array | None = None) -> Array:
        """Return f_t : (M, C), or (T, M, C) for t : (T,), at x_test : (M, d), which defaults to the training set."""
        F, _, _ = self.moments(t)
        f = self.problem.in_basis(x_test)[1] @ F
        return self.problem.to_caller(f if np.ndim(t) else f[0])

    def features(self, t: float, x: Array | None = None) -> Array:
        """Return the hidden layer's kernel H_t = E[h h'] = x~ S x~', (M, M), which is sigma_1^2 x~ x~' at t = 0."""
        _, (S,), _ = self.moments(t)
        return self.problem.to_caller(self.problem.spread(1, S, x))

    def ntk(self, t: float, x: Array | None = None) -> Array:
        """Return Theta_t = sigma_2^2 x~ S x~' + sigma_1^2 x~ x~' tr Q / C, (M, M), averaged over outputs."""
        _, S, Q = self.moments(t)
        return self.problem.ntk(S, Q, x)

    def _rate(self, t: float, state: Host) -> Host:
        """Return d/dt (F, S, Q)."""
        F, S, Q = (a[0] for a in self._split(state[None]))
        (s1, s2), gamma0 = self.problem.w_std, self.problem.gamma0
        e = self.problem.drive(F)
        eF, Fe = e @ F.T, e.T @ F
        return np.concatenate([
            (s2**2 * S @ e + s1**2 * e @ Q).ravel(),
            gamma0**2 * s1**2 * (eF + eF.T).ravel(),
            gamma0**2 * s2**2 * (Fe + Fe.T).ravel(),
        ])  # fmt: skip

    def _split(self, path: Host) -> tuple[Host, Host, Host]:
        """Split states (T, r C + r^2 + C^2) into F, S and Q, (T, ...) each."""
        r, C = self.problem.sizes
        T, (F, S, Q) = len(path), np.split(path, [r * C, r * C + r * r], axis=1)
        return F.reshape(T, r, C), S.reshape(T, r, r), Q.reshape(T, C, C)


def two_layer_limit(spec: s.Layer, x: Array, y: Array, *, gamma0: float = 1.0) -> TwoLayerLimit:
    """Run gradient flow on L = 1/(2N) sum |f - y|^2 for an infinitely wide two-layer linear network.

    spec : mn.Sequential(mn.Dense(n, w_std=sigma_1), mn.Dense(C, w_std=sigma_2)); n has no effect.
    x : (N, d), y : (N, C).  gamma0 >= 0 : strength of feature learning; 0 is the NTK limit, and 1 is mean field.

    Raises UnsupportedLayer for an activation or a bias, and ValueError for other depths, wrong shapes or gamma0 < 0.

    >>> import numpy as np, minintk as mn
    >>> spec = mn.Sequential(mn.Dense(512), mn.Dense(1))
    >>> x, y = np.array([[1.0]]), np.array([[1.0]])
    >>> for gamma0 in (0.0, 1.0, 3.0):                               # one input: learning speeds up as features grow
    ...     limit = two_layer_limit(spec, x, y, gamma0=gamma0)
    ...     print(limit.predict([0.2, 0.4])[:, 0, 0].round(4), limit.features(0.4)[0, 0].round(4))
    [0.3297 0.5507] 1.0
    [0.335  0.5722] 1.1521
    [0.3776 0.7146] 2.3655
    """
    found = linear_problem(spec, x, y, gamma0)
    if len(found.w_std) != 2:
        raise ValueError(
            f"two_layer_limit expects two Dense layers, got {len(found.w_std)}: use analytic.deep_linear_limit"
        )
    return TwoLayerLimit(found)
