"""Compute a kernel's spectrum, and the fraction of each mode that kernel regression learns from n examples.

The eigenfunctions of a kernel that depends only on the angle are harmonics on the sphere and parities on the cube.  Let
k(x, x') = k(t) with t = x.x' / (|x| |x'|), and let E denote the mean over uniformly distributed inputs:

    sphere S^{d-1}, |x|^2 = d     level l: spherical harmonics of degree l, h_l = (2l+d-2)/l binom(l+d-3, l-1) of them
        lambda_l = E[k(t) P_l(t)],    t with density ~ (1 - t^2)^((d-3)/2),    P_l Gegenbauer polynomials, P_l(1) = 1
        (l + d - 2) P_{l+1} = (2l + d - 2) t P_l - l P_{l-1}
    cube {-1, 1}^d                level l: products of l coordinates, h_l = binom(d, l) of them
        lambda_l = 2^-d sum_j binom(d, j) k(1 - 2j/d) p_l(j),    p_l Krawtchouk polynomials, p_l(0) = 1
        (d - l) p_{l+1} = (d - 2j) p_l - l p_{l-1}

All functions of a level have the same eigenvalue (Funk and Hecke for the sphere), and sum_l h_l lambda_l = k(1).  For
other input distributions, `data_modes` uses the eigenvalues of the kernel matrix of a large sample.

Eigenlearning: expand the target in the eigenfunctions, f = sum_i v_i phi_i.  Kernel regression with ridge on n random
examples gives f^ = sum_i v^_i phi_i.  Averaged over draws of the examples,

    kappa solves    sum_i lambda_i / (lambda_i + kappa) + ridge / kappa = n
    E v^_i = L_i v_i,                    L_i = lambda_i / (lambda_i + kappa)          the learnability of mode i
    test error = E0 (sum_i (1 - L_i)^2 v_i^2 + noise),    E0 = n / (n - sum_i L_i^2)       mean square, with noise
    training error = (ridge / (n kappa))^2 test error

The first line is a conservation law.  Without ridge, the learnabilities of all modes add up to exactly n for every draw
with an invertible kernel matrix.  For Gaussian eigenfunctions, the other lines become exact as n and the multiplicities
grow together.  At finite n they are not exact: for pure noise of variance 1 with 10 equal modes, n = 8 and no ridge,
the formula gives a test error of 5, but the mean over draws is 1 + n / (10 - n - 1) = 9.  For other eigenfunctions,
they are often good approximations.  (Simon et al. 2023; Bordelon, Canatar and Pehlevan 2020; Jacot et al. 2020.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb, exp, isfinite, log, sqrt

import numpy as np

from analytic.kernels import Kernel
from analytic.training.dynamics import check_targets
from analytic.training.eigen import check_kernel, spectrum
from analytic.training.gp import Kind, check_wanted
from minintk.arrays import Array, Host, to_host
from minintk.validate import number, numbers, whole

AngularKernel = Kernel | Callable[[Host], Host]
POLE = np.ones(1), np.zeros(1)  # cos and sin of the angle 0


@dataclass(frozen=True, eq=False)
class Modes:
    """Store a kernel's eigenvalue for each level l = 0, 1, ...

    eigenvalue : (K,).  multiplicity : (K,), the number of eigenfunctions of each level, a float because it can be huge.
    rest : the trace of the omitted levels, k(1) - sum_l h_l lambda_l, or 0 if this difference is zero up to rounding.
    """

    eigenvalue: Host
    multiplicity: Host
    rest: float = 0.0


def sphere_modes(kernel: AngularKernel, d: int, degree: int, *, kind: Kind = "ntk") -> Modes:
    """Return the eigenvalues of degrees 0 ... `degree` for uniform inputs on the sphere |x|^2 = d, d >= 2.

    kernel : `analytic.kernel(spec)` and its `kind`, "nngp" or "ntk", or any function k(t) of the cosine t in [-1, 1].
        Square-root singularities at +-1 are resolved, because the quadrature variable is the angle.

    An eigenvalue below 1000 eps E|k(t) P_l(t)| is lost to rounding and set to zero, even at low degrees if d is large,
    as the cosines are then small.  Raises ValueError for d < 2, a negative degree, or a kernel that is not finite.

    >>> modes = sphere_modes(lambda t: 1 + 3 * t, d=3, degree=2)     # 3 t = 3 x.x'/|x||x'|, three functions
    >>> modes.eigenvalue.round(12), modes.multiplicity
    (array([1., 1., 0.]), array([1., 3., 5.]))
    """
    whole("d", d, 2)
    whole("degree", degree, 0)
    nodes, weights = np.polynomial.legendre.leggauss(max(200, 8 * degree, int(sqrt(d) * (9 + sqrt(degree)))))
    t, sine = np.sin(nodes * (np.pi / 2)), np.cos(nodes * (np.pi / 2))
    weights = weights * (sine / sine.max()) ** (d - 2)
    weights /= weights.sum()
    values = weights * _values(kernel, t, sine, d, kind)
    before, now, found = np.zeros_like(t), np.ones_like(t), list[tuple[float, float]]()
    for level in range(degree + 1):
        found.append(_visible(values, now))
        before, now = now, t * now + level / max(1, level + d - 2) * (t * now - before)
    return _modes(found, [harmonics(d, level) for level in range(degree + 1)], _values(kernel, *POLE, d, kind))


def cube_modes(kernel: AngularKernel, d: int, *, kind: Kind = "ntk") -> Modes:
    """Return the eigenvalues of levels 0 ... d on the cube {-1, 1}^d, d <= 1029.  Arguments: see `sphere_modes`.

    >>> modes = cube_modes(lambda t: (10 * t) ** 2, d=10)            # (x.x')^2 = 10 + 2 sum of pairs of coordinates
    >>> modes.eigenvalue[:4].round(12), modes.multiplicity[:4]
    (array([10.,  0.,  2.,  0.]), array([  1.,  10.,  45., 120.]))
    """
    whole("d", d, 2, 1029)  # for larger d, binom(d, d/2) overflows
    j = np.arange(d + 1)
    values = _values(kernel, 1 - 2 * j / d, 2 * np.sqrt(j * (d - j)) / d, d, kind)
    weights = np.array([comb(d, i) / 2**d for i in range(d + 1)]) * values
    p = np.zeros((d + 2, d + 1))
    p[0] = 1
    for level in range(d):
        p[level + 1] = ((d - 2 * j) * p[level] - level * p[level - 1]) / (d - level)
    found = [_visible(weights, row) for row in p[:-1]]
    return _modes(found, [comb(d, level) for level in range(d + 1)], _values(kernel, *POLE, d, kind))


def data_modes(kernel: Array, y: Array) -> tuple[Modes, Host]:
    """Return the modes of inputs drawn from a data set, and the power of their targets in each mode.

        k = M Q diag(lambda) Q',    v = Q' y / sqrt(M)

    kernel : (M, M), the kernel matrix.  y : (M, C), the targets.  Returns (modes, power), with one level per mode.
    power : (M,), v_i^2 summed over outputs.  `eigenlearning(modes, n).test_error(power)` predicts the squared error for
    n << M examples.  Eigenvalues that are zero up to rounding become 0.  Raises the same exceptions as `gradient_flow`.

    >>> modes, power = data_modes(np.diag([2.0, 4.0]), np.array([[1.0], [3.0]]))
    >>> modes.eigenvalue, power
    (array([1., 2.]), array([0.5, 4.5]))
    """
    check_kernel("kernel", kernel)
    check_targets(y)
    M = kernel.shape[0]
    if kernel.ndim != 2 or y.shape[0] != M:
        raise ValueError(
            f"data_modes expects a kernel (M, M) and targets (M, C), got {tuple(kernel.shape)} and {tuple(y.shape)}"
        )
    s = spectrum(kernel)
    lam = to_host(s.lam).copy()
    lam[: s.zeros] = 0.0
    v = to_host(s.Q).T @ to_host(y)
    return Modes(lam / M, np.ones(M)), np.asarray(np.sum(v * v, axis=1) / M)


def harmonics(d: int, level: int) -> int:
    """Return the number of spherical harmonics of degree `level` on S^{d-1}.

    >>> [harmonics(3, level) for level in range(4)]
    [1, 3, 5, 7]
    """
    return comb(level + d - 1, level) - (comb(level + d - 3, level - 2) if level > 1 else 0)


def _values(kernel: AngularKernel, t: Host, sine: Host, d: int, kind: Kind) -> Host:
    """Return k(t) at cosines t, for inputs with |x|^2 = d.   sine : the sines of the same angles."""
    check_wanted(kind)
    if isinstance(kernel, Kernel):
        x, pole = np.zeros((len(t), d)), np.zeros((1, d))
        x[:, 0], x[:, 1], pole[0, 0] = sqrt(d) * t, sqrt(d) * sine, sqrt(d)
        values = getattr(kernel, kind)(x, pole)[:, 0]
    elif callable(kernel):
        values = np.asarray(kernel(t), dtype=np.float64)
    else:
        raise TypeError(f"expected analytic.kernel(spec) or a function k(t) of the cosine, got {kernel!r}")
    if values.shape != t.shape or not np.all(np.isfinite(values)):
        raise ValueError(f"k(t) expects finite values of t's shape {t.shape}, got {values!r}")
    return np.asarray(values)


def _visible(values: Host, polynomial: Host) -> tuple[float, float]:
    """Return the sum of values * polynomial, or 0 if the sum is below a bound on its rounding error, and this bound."""
    terms = values * polynomial
    total, resolution = float(np.sum(terms)), 1000 * np.finfo(np.float64).eps * float(np.sum(np.abs(terms)))
    return total if abs(total) > resolution else 0.0, resolution


def _modes(found: list[tuple[float, float]], h: list[int], trace: Host) -> Modes:
    """Return the modes with eigenvalues and resolutions `found`, multiplicities h and this trace, k(1) : (1,)."""
    (eigenvalue, resolution), multiplicity = np.array(found).T, np.array(h, dtype=np.float64)
    rest = float(trace[0] - multiplicity @ eigenvalue)
    unknown = float((multiplicity * resolution) @ (eigenvalue != 0) + 1e-12 * abs(trace[0]))
    return Modes(eigenvalue, multiplicity, 0.0 if abs(rest) < unknown else rest)


@dataclass(frozen=True, eq=False)
class Eigenlearning:
    """The learnability of each mode from n examples; built by `eigenlearning`.

    kappa : the threshold; modes with lambda >> kappa are learned.  learnability : (K,), L of each level.
    overfitting : E0, the factor by which overfitting to the n examples multiplies the test error.
    """

    modes: Modes
    n: int
    ridge: float
    kappa: float
    learnability: Host
    overfitting: float

    def test_error(self, power: Host, noise: float = 0.0) -> float:
        """Return E (f^(x) - y)^2 at a new input x with a noisy label y; subtract `noise` to get E (f^(x) - f(x))^2.

        power : (K,), sums of v_i^2 over the functions of each level.  noise : the variance of the label noise, >= 0.
        """
        each, levels = np.array(numbers(power)), len(self.learnability)
        if len(each) != levels or not (np.all(each >= 0) and noise >= 0):
            raise ValueError(
                f"test_error expects a power >= 0 for each of {levels} levels and noise >= 0, got {power!r}, {noise!r}"
            )
        return float(self.overfitting * (np.sum((1 - self.learnability) ** 2 * each) + noise))

    def train_error(self, power: Host, noise: float = 0.0) -> float:
        """Return (1/n) sum (f^ - y)^2 on the training examples, which is 0 without ridge."""
        return (self.ridge / (self.n * self.kappa)) ** 2 * self.test_error(power, noise)


def eigenlearning(modes: Modes, n: int, *, ridge: float = 0.0) -> Eigenlearning:
    """Return the learnability of each level from n >= 1 random examples, for regression with k + ridge I.

    Levels that `modes` omits are not learned; their trace, modes.rest, acts as an additional ridge.  Raises ValueError
    for eigenvalues negative beyond rounding, and if ridge + modes.rest = 0 and n >= the number of nonzero modes.

    >>> modes = Modes(np.array([1.0, 0.1]), np.array([1, 100]))
    >>> learned = eigenlearning(modes, 20)
    >>> learned.learnability.round(3), round(float(modes.multiplicity @ learned.learnability), 6)
    (array([0.705, 0.193]), 20.0)
    """
    from scipy.optimize import bisect

    lam, h, rest = check_modes(modes)
    n, ridge = whole("n", n), number("ridge", ridge, zero=True)
    trace, held = float(h @ lam) + rest, ridge + rest
    if held == 0 and n >= (count := float(h[lam > 0].sum())):
        raise ValueError(
            f"{n} examples determine all {count:.0f} modes: nothing is left to predict; take fewer, or ridge > 0"
        )
    most = log((trace + held) / n) + 1  # kappa <= (trace + ridge) / n
    kappa = exp(bisect(lambda u: h @ (lam / (lam + exp(u))) + held / exp(u) - n, -700, most, xtol=1e-300))
    L = lam / (lam + kappa)
    return Eigenlearning(modes, n, ridge, kappa, L, float(n / (n - h @ L**2)))


def check_modes(modes: Modes) -> tuple[Host, Host, float]:
    """Return eigenvalues >= 0, multiplicities and the rest, as float64; negative values due to rounding become 0.

    Raises TypeError unless `modes` is a `Modes`, and ValueError for a shape other than (K,) or other negative values.
    """
    if not isinstance(modes, Modes):
        raise TypeError(
            f"modes expects analytic.sphere_modes(...), cube_modes(...) or data_modes(...)[0], got {modes!r}"
        )
    lam, h = np.asarray(modes.eigenvalue, dtype=np.float64), np.asarray(modes.multiplicity, dtype=np.float64)
    if lam.shape != h.shape or lam.ndim != 1:
        raise ValueError(f"modes expect an eigenvalue and multiplicity per level, (K,), got {lam.shape} and {h.shape}")
    trace = float(h @ np.abs(lam)) + abs(modes.rest)
    if not (isfinite(trace) and np.all(lam >= -1e-13 * trace) and modes.rest >= -1e-10 * trace):
        raise ValueError(
            f"modes expect eigenvalues >= 0, got {lam.min()!r} (rest {modes.rest!r}, trace {trace:.3g}): no kernel has "
            "such a spectrum"
        )
    return np.maximum(lam, 0.0), h, modes.rest if modes.rest > 1e-12 * trace else 0.0
