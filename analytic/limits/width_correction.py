"""Compute the mean output and the mean tangent kernel of networks of width n, to first order in 1/n.

For gradient flow with one output on L = 1/(2N) sum r^2, r = f - y on the training set, t = lr * steps and d = d/dt,

    df_a = -1/N sum_b Theta_ab r_b    dTheta_ab = -1/N sum_c O3_abc r_c    dO3_abc = -1/N sum_d O4_abcd r_d

At width n, Theta = T + O(n^-1/2), where T is the kernel at infinite width.  O3 and O4 are O(1/n), and later terms are
O(1/n^2) (Dyer and Gur-Ari 2020; Huang and Yau 2020).  At leading order, r = e^{-T t / N} (f_0 - y) with f_0 ~ N(0, K)
for the NNGP K, and the mean of f is the kernel regressor.  The first-order correction to this mean is C.  In the modes
of T on the training set, with E_b = e^{-lam_b t} for the eigenvalues lam of T / N,

    dC_a = -1/N (sum_b T_ab C_b + S_a)
    S_a  = - sum_b E[Theta - T]_ab y_b E_b + 1/N sum_bd Cov(Theta_ab, Theta_bd) y_d J_bd
           + 1/N sum_bc (E[O3_abc f_c] y_b + E[O3_abc f_b] y_c) E_b V_c
           - 1/N^2 sum_bcd E[O4_abcd] (y_b y_c y_d + K_bc y_d + K_bd y_c + K_cd y_b) E_b H_cd
    E[Theta]_ab = T_ab + E[Theta - T]_ab - 1/N sum_c E[O3_abc f_c] V_c + 1/N^2 sum_cd E[O4_abcd] (y_c y_d + K_cd) H_cd

    V_c = int_0^t e^{-lam_c s} ds   J_bd = int_0^t e^{-lam_b (t-s) - lam_d s} ds   H_cd = int_0^t e^{-lam_c s} V_d(s) ds

Moments of odd order in f vanish, because f and -f are equally likely at initialisation.  Hence non-Gaussianity of f_0
has no effect at this order.  `analytic.limits.one_finite_layer` computes the moments of Theta, O3 and O4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from analytic.kernels import kernel
from analytic.limits.linear_problem import check_data, hidden_layers, integrated
from analytic.limits.one_finite_layer import FiniteLayer, Jet, Moments, derivatives, through
from analytic.training.eigen import check_memory, spectrum
from minintk import spec as s
from minintk.arrays import Array, Host, array_namespace, own, to_host, to_library
from minintk.layers.activation import pointwise
from minintk.spec.shapes import UnsupportedLayer
from minintk.validate import generator, times, whole

DRAWS = 8
"""Number R of independent estimates of the moments; their scatter gives the standard error."""
RTOL, ATOL = 1e-7, 1e-9
"""The solver's tolerance is RTOL |value| + ATOL in units of Y = max |y| over modes, or of 1e-6 Y^3 if Y > 1e3."""


class Expansion(NamedTuple):
    """A mean over networks: the infinite-width limit, the first-order correction, and its error due to sampling."""

    limit: Array
    correction: Array
    error: Array


@dataclass(frozen=True, eq=False, repr=False)
class WidthCorrection:
    """Result of `width_correction`, on the host in float64, for P examples, of which the first N are the training set.

    T : (P, N).  lam : (N,), ascending.  Q : (N, N), the modes.  K : (N, N) and y : (N,), in the modes.  moments : with
    b, c, d in the modes and a leading axis of R estimates.  like : an array of the caller's library and dtype.
    """

    T: Host
    lam: Host
    Q: Host
    K: Host
    y: Host
    moments: Moments
    like: Array

    def predict(self, t: Any) -> Expansion:
        """Return E f_t, (M, 1), or (T, M, 1) for times t : (T,), at x_test, which defaults to the training set."""
        at, (P, N), R = self._times(t), self.T.shape, len(self.moments.theta)
        source, size = self._source(), float(np.max(np.abs(self.y))) or 1.0
        unit = size * max(1.0, size / 1e3) ** 2  # the correction of large targets is of order y^3

        def rate(t: float, state: Host) -> Host:
            C = state.reshape(R, P)
            return np.asarray(-(C[:, :N] @ self.T.T + source(t) / unit).ravel() / N)

        corrections = integrated(rate, np.zeros(R * P), at, RTOL, ATOL).reshape(len(at), R, P).swapaxes(0, 1)
        learned = _integral(self.lam, at[:, None]) * self.y / N @ (self.T @ self.Q).T
        found = self._expansion(learned, corrections, axis=1, unit=unit)
        return Expansion(*(a[..., None] if np.ndim(t) else a[0, :, None] for a in found))

    def kernel(self, t: float) -> Expansion:
        """Return E Theta_t between x_test, which defaults to the training set, and the training set, (M, N)."""
        if np.ndim(t):
            raise ValueError(f"t expects one time, t = lr * steps, got {t!r}")
        (t,), N, m = self._times(t), len(self.y), self.moments
        V, _, H = self._integrals(t)
        moved = np.einsum("rabcd,cd->rab", m.o4, (np.outer(self.y, self.y) + self.K) * H / N**2)
        moved += m.theta - np.einsum("rabcc,c->rab", m.o3f, V / N)
        return self._expansion(self.T, moved @ self.Q.T, axis=0)

    def _source(self) -> Any:
        """Return S : (R, P) as a function of t."""
        y, K, m, N = self.y, self.K, self.moments, len(self.y)
        noise = np.einsum("rabbd,d->rabd", m.cov, y) / N
        turning = (np.einsum("rabcc,b->rabc", m.o3f, y) + np.einsum("rabcb,c->rabc", m.o3f, y)) / N
        y_K = y[:, None, None] * K
        cubic = np.multiply.outer(np.outer(y, y), y) + y_K + y_K.swapaxes(0, 1) + y_K.transpose(1, 2, 0)
        bending = m.o4 * cubic / N**2

        def at(t: float) -> Host:
            V, J, H = self._integrals(t)
            driven = turning @ V - m.theta * y - np.einsum("rabcd,cd->rab", bending, H)
            return np.asarray(driven @ np.exp(-self.lam * t) + np.einsum("rabd,bd->ra", noise, J))

        return at

    def _integrals(self, t: float) -> tuple[Host, Host, Host]:
        """Return V : (N,), J and H : (N, N)."""
        b, d = self.lam[:, None], self.lam
        V = _integral(d, t)
        return V, np.exp(-np.minimum(b, d) * t) * _integral(abs(b - d), t), (V[:, None] - _integral(b + d, t)) / d

    def _times(self, t: Any) -> Host:
        """Return the times (T,), capped at 60 / lam[0], by which even the slowest mode has been learned."""
        return np.minimum(np.atleast_1d(times(t)), 60 / self.lam[0])

    def _expansion(self, limit: Host, found: Host, axis: int, unit: float = 1.0) -> Expansion:
        """Return limit, correction (`unit` times the mean of R estimates) and standard error.   axis : the examples."""
        P, N = self.T.shape
        parts = (limit, unit * found.mean(axis=0), unit * found.std(axis=0, ddof=1) / len(found) ** 0.5)
        rows = np.arange(N if P > N else 0, P)
        xp, dtype = array_namespace(self.like), str(self.like.dtype)
        return Expansion(*(to_library(np.take(a, rows, axis).astype(dtype), xp) for a in parts))


def _integral(lam: Host, t: Any) -> Host:
    """Return int_0^t e^{-lam s} ds."""
    from scipy.special import exprel

    return np.asarray(t * exprel(-lam * t))


def width_correction(
    spec: s.Layer, x: Array, y: Array, x_test: Array | None = None, *,
    samples: int = 2**12, rng: np.random.Generator | None = None,
) -> WidthCorrection:  # fmt: skip
    """Compute the mean output and mean tangent kernel of networks trained by gradient flow, to first order in 1/width.

    spec : mn.Sequential(mn.Dense(n), mn.Tanh(), ..., mn.Dense(1)), of any depth, with or without biases, in the NTK
    parametrization.  x : (N, d), y : (N, 1), x_test : (M, d).
    samples : number of draws of a neuron's pre-activations per Gaussian average, rounded down to a power of two.  The
    draws are Sobol points with 8 random shifts from `rng` (default numpy.random.default_rng(0)).  The scatter of the 8
    estimates gives the standard error.  The work is O(samples L P^2 N^2) for P = N + M examples and L hidden layers.

    The methods `predict(t)` and `kernel(t)` of the result return the infinite-width limit and the correction
    (proportional to 1/n for equal widths n).  The next term is O(1/n^2).  Raises UnsupportedLayer for other layers,
    several outputs, and activations with kinks, for which E phi''^2 in the mean of O4 is infinite.  Raises ValueError
    for invalid shapes or a singular NTK of the training set, and MemoryError if too little memory is free.

    >>> import numpy as np, minintk as mn
    >>> spec = mn.Sequential(mn.Dense(100), mn.Tanh(), mn.Dense(100), mn.Tanh(), mn.Dense(1))
    >>> x, y = np.array([[1.0, 0.0], [0.8, 0.6]]), np.array([[1.0], [-1.0]])
    >>> mean = width_correction(spec, x, y).predict(20.0)
    >>> mean.limit.ravel().round(3), mean.correction.ravel().round(3)
    (array([ 0.745, -0.745]), array([ 0.034, -0.034]))
    """
    dense, phi = hidden_layers(spec)
    if dense[-1].width != 1 or any(pointwise(act).kinks for act in phi):
        raise UnsupportedLayer(f"width_correction expects one output, and activations without kinks, got {spec!r}")
    points = np.concatenate([np.asarray(to_host(a), dtype=np.float64) for a in check_data(x, y, 1, x_test)])
    P, N, L, samples = len(points), len(x), len(phi), whole("samples", samples, 2)
    check_memory(np, "the moments", 8 * P * P * (20 * samples + DRAWS * N * N + 200), "use fewer examples or samples")
    ladder = [layer for pair in zip(dense, phi) for layer in pair]
    below = [kernel(s.Sequential(*ladder[: 2 * at + 1])).both(points) for at in range(L)]  # for the pre-activations
    K, T = (to_host(k) for k in kernel(spec).both(points))
    modes = spectrum(T[:N, :N])
    if modes.zeros:
        raise ValueError(
            f"the NTK of the training set is singular, its smallest eigenvalue is {modes.smallest:.3g}: remove "
            "examples that nearly coincide, or add biases"
        )
    rng = generator(rng)
    found = [_moments(dense, phi, below, N, samples, rng) for _ in range(DRAWS)]
    theta, *rest = (np.stack(draws) for draws in zip(*found))
    Q = to_host(modes.Q)
    turned = (np.einsum("rabcd,bi,cj,dk->raijk", a, Q, Q, Q, optimize=True) for a in rest)
    target = np.asarray(to_host(y)[:, 0], dtype=np.float64) @ Q
    if not np.abs(target).max() < 1e90:
        raise ValueError(f"y expects targets below 1e90, as the correction has y^3, got {np.abs(target).max():.3g}")
    lam = to_host(modes.lam) / N
    return WidthCorrection(T[:, :N], lam, Q, Q.T @ K[:N, :N] @ Q, target, Moments(theta @ Q, *turned), own(x[:0]))


def _moments(dense: Any, phi: Any, below: Any, N: int, samples: int, rng: np.random.Generator) -> Moments:
    """Sum the moments of all hidden layers, starting from the last, which has K = w2 c + b^2 and T = K + w2 rho."""
    P, w2 = len(below[0].nngp), dense[-1].w_std ** 2
    flat = np.zeros((4, 4, P, P))
    K, T = (Jet(w2 * np.multiply.outer(on, np.ones((P, P))), flat) for on in ((1, 0, 0, 0), (1, 0, 0, 1)))
    total: list[Any] = [0.0] * 4
    for layer, act, (nngp, kappa) in reversed(list(zip(dense, phi, below))):
        at = derivatives(act, _gaussian(nngp, samples, rng))
        total = [a + b / layer.width for a, b in zip(total, FiniteLayer(at, kappa, K, T, N).moments(), strict=True)]
        step = through(at, kappa, layer.w_std**2)
        K, T = K.below(*step), T.below(*step)
    return Moments(*total)


def _gaussian(k: Host, samples: int, rng: np.random.Generator) -> Host:
    """Draw samples of N(0, k), (S, P), from shifted Sobol points; their first coordinates drive k's largest modes."""
    from scipy.special import ndtri
    from scipy.stats.qmc import Sobol

    lam, V = np.linalg.eigh(k)
    points = (Sobol(len(k), scramble=False).random_base2(samples.bit_length() - 1) + rng.random(len(k))) % 1
    return np.asarray(ndtri(points)[:, ::-1] @ (V * np.sqrt(np.maximum(lam, 0))).T)
