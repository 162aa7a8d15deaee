"""Compute NNGP and NTK by the published recursion, and gradient flow by an eigendecomposition, in plain NumPy.

    K[n, m, h, w, h', w'] = E z z',   Theta[n, m, h, w, h', w'] = sum over theta of dz/dtheta dz'/dtheta

Here z is a channel's value at pixel (h, w) of x_n, and z' at pixel (h', w') of x_m.  A vector is an image of one pixel.

`analytic.kernel` is more accurate for nearly parallel vectors.  Here the angle a is the arccos of a cosine rounded to
1e-16.  A small a is accurate only to 1e-8, because cos a is about 1 - a^2/2.  K depends on a^2 and is hardly affected.
Theta depends on a itself and has a relative error of about 3e-9 per ReLU.  `analytic.kernel` computes p = (1 - cos a)/2
from the vectors' difference and propagates p through the layers.  Its K and Theta are accurate to rounding error.
"""

from itertools import pairwise, product

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, check_examples
from minintk.spec.shapes import UnsupportedLayer, out_shape
from minintk.spec.windows import Axis, axes


def nngp_and_ntk(spec: s.Layer, x1: Array, x2: Array | None = None) -> tuple[Array, Array]:
    """Compute K and Theta of the infinitely wide network, (N, M) each, layer by layer from K = x x'/d and Theta = 0.

    x1 : NumPy array, (N, d) or (N, H, W, C).  x2 : M examples; defaults to x1.  Memory: a few ((N + M) H W)^2 numbers.
    Raises UnsupportedLayer if `step` lacks a rule; TypeError or ValueError for bad inputs.  Lee et al. 2019, suppl. E.

    >>> from analytic import kernel
    >>> spec, x = s.Sequential(s.Dense(9), s.ReLU(), s.Dense(1)), np.array([[1.0, 0.0], [1.0, 1e-8]])
    >>> f"{abs(nngp_and_ntk(spec, x)[1] - kernel(spec).ntk(x)).max():.0e} of {kernel(spec).ntk(x).max():.1f}"
    '8e-10 of 0.5'
    """
    check_examples("x1", x1)
    if x2 is not None:
        check_examples("x2", x2, x1.shape[1:])
    x = x1 if x2 is None else np.concatenate([x1, x2])
    if x.ndim not in (2, 4) or 0 in x.shape[1:]:
        raise ValueError(f"x1 expects vectors (N, d) or images (N, H, W, C), got shape {x1.shape}")
    out_shape(spec, x.shape[1:])  # raises ValueError if the layers do not fit
    images = x if x.ndim == 4 else x[:, None, None, :]
    K = np.einsum("nhwc,mijc->nmhwij", images, images) / x.shape[-1]
    Theta = np.zeros_like(K)
    for before, layer in pairwise([s.Identity(), *chain(spec), s.Flatten()]):
        K, Theta = step(before, layer, K, Theta)
    first = 0 if x2 is None else len(x1)
    return K[: len(x1), first:, 0, 0, 0, 0], Theta[: len(x1), first:, 0, 0, 0, 0]


def chain(spec: s.Layer) -> list[s.Layer]:
    """Return the layers in order, with nested Sequentials unpacked."""
    return [inner for layer in spec for inner in chain(layer)] if isinstance(spec, s.Sequential) else [spec]


def step(before: s.Layer, layer: s.Layer, K: Array, Theta: Array) -> tuple[Array, Array]:
    """Return K and Theta after `layer`.  For phi, K' = E phi(u) phi(u'), Theta' = Theta E phi'(u) phi'(u')."""
    match before, layer:
        case s.Dense() | s.Conv2d(), s.ReLU() | s.Erf():  # sums over many weights are Gaussian
            q = np.einsum("nnhwhw->nhw", K)
            dual = relu_dual if isinstance(layer, s.ReLU) else erf_dual
            K, K_dot = dual(K, q[:, None, :, :, None, None], q[None, :, None, None, :, :])
            return K, Theta * K_dot
        case _, s.Conv2d():
            return dense(layer, pixel_mean(layer, K), pixel_mean(layer, Theta))
        case _, s.Dense():
            return dense(layer, K, Theta)
        case _, s.AvgPool(normalize_edges=False) | s.GlobalAvgPool() | s.Flatten():
            return pixel_mean(layer, K), pixel_mean(layer, Theta)
        case _, s.Identity():
            return K, Theta
    raise UnsupportedLayer(f"{layer!r} after {before!r} is not in the textbook: see analytic.kernel(spec)")


def dense(layer: s.Dense | s.Conv2d, K: Array, Theta: Array) -> tuple[Array, Array]:
    """Compute K' = w^2 K + b^2 and Theta' = w^2 Theta + w^2 K + b^2; b_init="zeros" omits b^2 from K'.

    >>> dense(s.Dense(9, w_std=3.0, b_std=1.0), 2.0, 5.0)
    (19.0, 64.0)
    """
    w, b, drawn = float(layer.w_std), float(layer.b_std), layer.b_init == "normal"
    return w**2 * K + drawn * b**2, w**2 * Theta + w**2 * K + b**2


def relu_dual(K: Array, q: Array, q_prime: Array) -> tuple[Array, Array]:
    """Return E relu(u) relu(u') = sqrt(q q') (sin a + (pi - a) cos a) / 2 pi,   E relu'(u) relu'(u') = (pi - a) / 2 pi.

    a = arccos(K / sqrt(q q')).  Both results are 0 if q q' = 0.  K, q, q' are broadcast.  Lee et al. 2019, suppl. C.

    >>> np.round(relu_dual(0.0, 1.0, 1.0), 4)
    array([0.1592, 0.25  ])
    """
    norm = np.sqrt(q * q_prime)
    a = np.arccos(np.clip(K / np.where(norm > 0, norm, 1), -1, 1))
    return norm * (np.sin(a) + (np.pi - a) * np.cos(a)) / (2 * np.pi), (norm > 0) * (np.pi - a) / (2 * np.pi)


def erf_dual(K: Array, q: Array, q_prime: Array) -> tuple[Array, Array]:
    """Return E erf(u) erf(u') = (2/pi) arcsin(2K / sqrt(r)),   E erf'(u) erf'(u') = (4/pi) / sqrt(r - 4K^2).

    r = (1 + 2q) (1 + 2q').  K, q and q' are broadcast.  Lee et al. 2019, supplement C; Williams 1997.

    >>> np.round(erf_dual(0.5, 0.5, 0.5), 4)
    array([0.3333, 0.7351])
    """
    r = (1 + 2 * q) * (1 + 2 * q_prime)
    return 2 / np.pi * np.arcsin(2 * K / np.sqrt(r)), 4 / np.pi / np.sqrt(r - 4 * K**2)


def pixel_mean(layer: s.Layer, K: Array) -> Array:
    """Average K or Theta, (N, M, H, W, H', W'), over a window's offsets s or all pixels p (Arora et al. 2019, sec. 4).

        Conv2d     1/|s| sum_s K(p + s, p' + s)               Flatten          1/|p| sum_p K(p, p)
        AvgPool    1/|s|^2 sum_{s, s'} K(p + s, p' + s')      GlobalAvgPool    1/|p|^2 sum_{p, p'} K(p, p')

    >>> pixel_mean(s.Flatten(), np.eye(6).reshape(1, 1, 2, 3, 2, 3)).ravel()
    array([1.])
    """
    H, W = K.shape[2:4]
    both = axes(layer, (H, W, 1)) if isinstance(layer, s.Conv2d | s.AvgPool) else (Axis(H, H), Axis(W, W))
    K = np.pad(K, 2 * [(0, 0)] + 2 * [(a.before, a.after) for a in both], "wrap" if both[0].circular else "constant")
    places = product(*[[a.along(i) for i in range(a.kernel)] for a in both])
    pairs = [(p, p) for p in places] if isinstance(layer, s.Conv2d | s.Flatten) else list(product(places, repeat=2))
    return np.asarray(sum(K[:, :, *p, *p_prime] for p, p_prime in pairs)) / len(pairs)


def gradient_flow(
    Theta: Array, y: Array, t: float, Theta_test: Array, f0: Array | float = 0.0, f0_test: Array | float = 0.0
) -> Array:
    """Compute f_t(x), (M, C), in gradient flow on L = 1/(2N) sum |f - y|^2: df/dt = -Theta (f - y) / N, t = lr * steps.

        f_t(x) = f_0(x) + Theta(x, X) Theta^-1 (I - e^(-Theta t / N)) (y - f_0(X))     Lee et al. 2019, eqs. (9) to (11)

    Theta : (N, N); y, f0 : (N, C); Theta_test = Theta(x, X) : (M, N); f0_test : (M, C).  t can be inf.  Raises
    ValueError for t < 0, NaN, wrong shapes, or a Theta that is not symmetric and positive definite.

    >>> gradient_flow(np.eye(1), np.ones((1, 1)), np.log(2), np.eye(1)).round(9)
    array([[0.5]])
    """
    check_examples("y", y)
    check_examples("Theta_test", Theta_test, (len(y),))
    for f, N in ((f0, len(y)), (f0_test, len(Theta_test))):
        if not (np.shape(f) in ((), (N, y.shape[1])) and np.all(np.isfinite(f))):
            raise ValueError(f"f0, f0_test expect a finite number or finite values ({N}, {y.shape[1]}), got {f!r}")
    lam, V = np.linalg.eigh(Theta)  # Theta = V diag(lam) V'
    if not (t >= 0 and np.allclose(Theta, Theta.T) and lam[0] > len(y) * np.finfo(lam.dtype).eps * lam[-1]):
        raise ValueError(f"expected t >= 0 and Theta positive definite, got {t} and eigenvalues from {lam[0]:.2g} on")
    gain = -np.expm1(-lam * t / len(y)) / lam
    return f0_test + Theta_test @ (V @ (gain[:, None] * (V.T @ (y - f0))))
