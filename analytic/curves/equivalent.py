"""Compute the loss of the random-feature model from deterministic equivalents of large random matrices.

    inputs   z ~ N(0, I), one number per mode,      target y = sum_k v_k z_k + noise,     noise of variance sigma2
    model    f(z) = z' Lambda^1/2 W theta,        W: n columns of entries N(0, 1/n),    theta(0) = 0
    loss     (1/2N) sum over N examples of (f - y)^2

    C = Z'Z / N,    A = Lambda^1/2 W W' Lambda^1/2           Z : inputs in rows,  eps : noise,  Lambda = diag(lambda_k)

The residual r = v - Lambda^1/2 W theta of gradient flow obeys dr/dt = -A C r - A Z' eps / N.  Its Laplace transform
r(s) is given by a resolvent, and s r(s) at s = ridge / N is the residual of ridge regression.  E(s, s') = s s' E[r(s) .
r(s')] + sigma2 therefore gives the losses of both.  With L_k = lambda_k / (lambda_k + kappa),

    s = kappa (1 - sum L_k / N) (1 - sum L_k / n)                 defines kappa(s), except for real s <= 0
    q0 = kappa kappa' sum v_k^2 / ((lambda_k + kappa) (lambda_k + kappa'))       p = sum L_k L'_k
    q1 = sum lambda_k v_k^2 / ((lambda_k + kappa) (lambda_k + kappa'))           m = sum lambda_k / ((..) (..))

    E (1 - p/N) = q0 + sigma2 + kappa kappa' m g          g is the variance that the random features add
    g (n - p)   = q1 + m E / N

n -> infinity gives kernel regression, and N -> infinity gives the population gradient.  docs/learning-curves.md derives
these formulas.  (Bordelon, Atanasov and Pehlevan 2024; without time, Simon et al. 2023.)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from minintk.arrays import Host


@dataclass(frozen=True, eq=False)
class Equivalent:
    """The deterministic equivalent E(s, s') for given modes, target, n and N.

    lam, h, v2 : (K,), each level's eigenvalue, multiplicity and sum of v_k^2.  rest : the trace of the omitted modes.
    n, N : the numbers of parameters and of examples, which can be inf.  sigma2 : the variance of the label noise.
    """

    lam: Host
    h: Host
    v2: Host
    rest: float
    n: float
    N: float
    sigma2: float

    def freedom(self, kappa: Host) -> tuple[Host, Host]:
        """Return the degrees of freedom df = sum L_k and the derivative d df / d kappa, both with kappa's shape."""
        inverse = 1 / (self.lam + kappa[..., None])
        df = inverse @ (self.h * self.lam) + self.rest / kappa
        return df, -(inverse**2) @ (self.h * self.lam) - self.rest / kappa**2

    def s(self, kappa: Host) -> tuple[Host, Host]:
        """Return s = kappa (1 - df/N) (1 - df/n), and ds/dkappa."""
        df, slope = self.freedom(kappa)
        data, width = 1 - df / self.N, 1 - df / self.n
        return kappa * data * width, data * width - kappa * slope * (width / self.N + data / self.n)

    def start(self, s: float) -> float:
        """Return kappa for a real s > 0: the largest root, on the branch where s(kappa) increases from 0."""
        from scipy.optimize import brentq

        def excess(u: float) -> float:
            kappa = np.exp(u)
            df = float(self.freedom(np.array(kappa))[0])
            if df >= min(self.n, self.N):
                return -1.0
            return float(np.tanh((u + np.log1p(-df / self.N) + np.log1p(-df / self.n) - np.log(s)) / 2))

        high = np.log(4 * (s + (float(self.h @ self.lam) + self.rest) * (1 / self.n + 1 / self.N)))
        return float(np.exp(brentq(excess, np.log(s) - 1e-3, high, xtol=1e-14, rtol=1e-14, maxiter=1000)))

    def follow(self, s: Host) -> Host:
        """Return kappa(s) at the points s : (J,) of a path that starts at a real s > 0.

        From each point to the next, steps are halved until Newton's correction is small, to stay on the same branch.
        """
        at, kappa, found = complex(s[0]), complex(self.start(float(s[0].real))), []
        for target in s:
            step = 1.0
            while at != target:
                aim = target if step == 1.0 else at + step * (target - at)
                guess = kappa + (aim - at) / self.s(np.array(kappa))[1]
                root = self._newton(guess, aim)
                if abs(root - guess) > 0.1 * min(abs(root), abs(kappa)):
                    step /= 2
                    if step < 1e-6:
                        raise ArithmeticError(f"kappa is lost near s = {at}: report the spectrum")
                else:
                    at, kappa, step = aim, root, min(1.0, 2 * step)
            found.append(kappa)
        return np.array(found)

    def _newton(self, kappa: complex, s: complex) -> complex:
        """Return the root of s(kappa) = s near the guess `kappa`, or inf if Newton's method does not converge."""
        for _ in range(30):
            value, slope = self.s(np.array(kappa))
            step = complex((value - s) / slope)
            kappa -= step
            if not abs(step) > 1e-14 * abs(kappa):
                break
        return kappa if abs(step) < 1e-9 * abs(kappa) else complex(inf)

    def error(self, kappa: Host, other: Host) -> Host:
        """Return E(s, s'), (J, J'), given kappa(s) as kappa : (J,) and kappa(s') as other : (J',)."""
        a, b = 1 / (self.lam + kappa[:, None]), 1 / (self.lam + other[:, None])
        kk = np.multiply.outer(kappa, other)
        q0, q1 = kk * ((a * self.v2) @ b.T), (a * (self.lam * self.v2)) @ b.T
        m, p = (a * (self.h * self.lam)) @ b.T + self.rest / kk, (a * (self.h * self.lam**2)) @ b.T
        if np.isinf(self.n):
            return np.asarray((q0 + self.sigma2) / (1 - p * (1 / self.N)))
        added = kk * m / (self.n - p)
        return np.asarray((q0 + self.sigma2 + added * q1) / (1 - (p + added * m) * (1 / self.N)))
