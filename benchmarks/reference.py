"""Compute the reference results in plain float64 NumPy, from the formulas of the theory and of backpropagation.

This module shares no code with minintk and is not optimised. Results of `kernels` and `ensembles` are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import pi, sqrt
from typing import Any

import numpy as np

Array = Any


def infinite_kernels(
    x: Array, z: Array, depth: int, activation: str, w_std: float, b_std: float
) -> tuple[Array, Array]:
    """Return the NNGP and the NTK of `depth` hidden layers and a linear output (Lee et al. 2019, supplement).

    Each layer maps K to K' = w_std^2 T(K) + b_std^2 and Theta to K' + w_std^2 Theta Tdot(K); `DUALS` gives T and Tdot.
    """
    x, z, dual = x.astype(np.float64), z.astype(np.float64), DUALS[activation]
    q, r, k = (w_std**2 * product / x.shape[1] + b_std**2 for product in ((x * x).sum(1), (z * z).sum(1), x @ z.T))
    theta = k.copy()
    for _ in range(depth):
        t, t_dot = dual(q[:, None], r, k)
        q, r = (w_std**2 * dual(v, v, v)[0] + b_std**2 for v in (q, r))
        k = w_std**2 * t + b_std**2
        theta = k + w_std**2 * theta * t_dot
    return k, theta


# These functions return (E[phi(u) phi(v)], E[phi'(u) phi'(v)]) for u, v with variances q, r and covariance k.


def _relu(q: Array, r: Array, k: Array) -> tuple[Array, Array]:
    s = np.sqrt(q * r)
    c = np.clip(k / s, -1, 1)
    c = np.where(c > 1 - 2e-14, 1.0, c)  # u and v are equal up to rounding
    angle = np.arccos(c)
    return s * (np.sin(angle) + (pi - angle) * c) / (2 * pi), (pi - angle) / (2 * pi)


def _erf(q: Array, r: Array, k: Array) -> tuple[Array, Array]:
    product = (1 + 2 * q) * (1 + 2 * r)
    return 2 / pi * np.arcsin(2 * k / np.sqrt(product)), 4 / pi / np.sqrt(product - 4 * k**2)


def _sin(q: Array, r: Array, k: Array) -> tuple[Array, Array]:
    decay = np.exp(-(q + r) / 2)
    return decay * np.sinh(k), decay * np.cosh(k)


def _cos(q: Array, r: Array, k: Array) -> tuple[Array, Array]:
    return _sin(q, r, k)[::-1]


EXP = 0.5, 0.3
"""The coefficients (`a`, `b`) of phi(x) = a exp(b x), so small that the kernels of three layers stay moderate."""


def _exp(q: Array, r: Array, k: Array) -> tuple[Array, Array]:
    t = EXP[0] ** 2 * np.exp(EXP[1] ** 2 * ((q + r) / 2 + k))
    return t, EXP[1] ** 2 * t


def _gaussian(q: Array, r: Array, k: Array) -> tuple[Array, Array]:
    determinant = (1 + 2 * q) * (1 + 2 * r) - 4 * k**2
    return determinant**-0.5, 4 * k * determinant**-1.5


def _by_quadrature(phi: Callable[[Array], Array], phi_dot: Callable[[Array], Array]) -> Dual:
    """Return phi's dual, integrated by the trapezoidal rule over z and z'. The error is below 1e-8 for q, r <= 2.

    For standard normal z and z', u = sqrt(q) z and v = k / sqrt(q) z + sqrt(r - k^2 / q) z'.
    """
    z = np.linspace(-7, 7, 57)
    w = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()

    def dual(q: Array, r: Array, k: Array) -> tuple[Array, Array]:
        q, r, k = np.broadcast_arrays(q, r, k)
        totals = np.zeros((2, *k.shape))
        rest = np.sqrt(np.maximum(r - k**2 / q, 0))[..., None] * z
        for node, weight in zip(z, w):
            u, v = np.sqrt(q) * node, (k / np.sqrt(q) * node)[..., None] + rest
            for total, f in zip(totals, (phi, phi_dot)):
                total += weight * f(u) * (f(v) @ w)
        return totals[0], totals[1]

    return dual


def _gelu(z: Array) -> Array:
    return z * _Phi(z)


def _gelu_dot(z: Array) -> Array:
    return _Phi(z) + z * np.exp(-(z**2) / 2) / sqrt(2 * pi)


def _Phi(z: Array) -> Array:
    from scipy.special import ndtr  # imported here because PyTorch's environment lacks SciPy

    return ndtr(z)


Dual = Callable[[Array, Array, Array], tuple[Array, Array]]
DUALS: dict[str, Dual] = {
    "relu": _relu,
    "erf": _erf,
    "sin": _sin,
    "cos": _cos,
    "exp": _exp,
    "gaussian": _gaussian,
    "gelu": _by_quadrature(_gelu, _gelu_dot),
    "tanh": _by_quadrature(np.tanh, lambda z: 1 / np.cosh(z) ** 2),
}


def infinite_attention_kernels(x: Array, w_std: float) -> tuple[Array, Array]:
    """Return the NNGP and the NTK of a ReLU layer, softmax attention, a mean over positions and a linear output.

    x : (N, L, d). The ReLU layer acts on each position. The attention weights are the softmax of its NNGP kernel K_0(x,
    x). The formulas are those of Hron et al. 2020 for queries equal to keys and scores divided by the keys' dimension.
    """
    K = w_std**2 / x.shape[-1] * np.einsum("nic,mjc->nmij", x, x)
    q = np.einsum("nnii->ni", K)
    t, t_dot = _relu(q[:, None, :, None], q[:, None, :], K)
    A = np.exp(np.einsum("nnij->nij", t))
    A /= A.sum(-1, keepdims=True)
    share = A.mean(1)  # weight of each position in the mean
    k, theta = (np.einsum("ni,nmij,mj->nm", share, a, share, optimize=True) for a in (t, t + K * t_dot))
    return w_std**2 * k, w_std**2 * (2 * k + theta)


def infinite_cnn_kernels(x: Array, body: Sequence[str], pool: bool, w_std: float, b_std: float) -> tuple[Array, Array]:
    """Return the NNGP and the NTK of a network of 3 x 3 convolutions with zero padding and a linear output.

    body : the activation of each convolution, with "mean" where means over 2 x 2 pixels are taken. pool : True if the
    output layer acts on the mean over pixels, False if it acts on all pixels. x : (N, H, W, C). See Novak et al. 2019
    and Arora et al. 2019.

    `cov` : the covariances of all pairs of pixels, (H, W, H, W), if `pool`, else of pixels at equal positions, (H, W).
    """
    x = x.astype(np.float64)
    N, C = x.shape[0], x.shape[3]
    variances: list[list[Array]] = []  # one (H, W) array per image and activation, before the activation
    k, theta = np.empty((N, N)), np.empty((N, N))
    for i in range(N):
        for j in range(i, -1, -1):  # starts with the pair (i, i)
            cov = np.einsum("hwc,abc->hwab", x[i], x[j]) / C if pool else np.sum(x[i] * x[j], axis=2) / C
            tangent = np.zeros_like(cov)
            own: list[Array] = []
            layer = 0
            for name in body:
                if name == "mean":
                    cov, tangent = _halved(cov), _halved(tangent)
                    continue
                cov = w_std**2 * _mean_3x3(cov, pool) + b_std**2
                tangent = w_std**2 * _mean_3x3(tangent, pool) + cov
                if i == j:
                    own.append(np.einsum("hwhw->hw", cov).copy() if pool else cov)
                q, r = (own if i == j else variances[i])[layer], (own if i == j else variances[j])[layer]
                cov, t_dot = DUALS[name](q[:, :, None, None] if pool else q, r, cov)
                tangent *= t_dot
                layer += 1
            if i == j:
                variances.append(own)
            k[i, j] = k[j, i] = w_std**2 * cov.mean() + b_std**2
            theta[i, j] = theta[j, i] = w_std**2 * tangent.mean() + k[i, j]
    return k, theta


def _halved(a: Array) -> Array:
    """Average over blocks of 2 x 2 pixels of both images, (H, W, H, W) -> (H/2, W/2, H/2, W/2)."""
    H, W = a.shape[0] // 2, a.shape[1] // 2
    return a.reshape(H, 2, W, 2, H, 2, W, 2).mean(axis=(1, 3, 5, 7))


def _mean_3x3(a: Array, joint: bool) -> Array:
    """Average over 3 x 3 windows with zero padding.

    If `joint`, `a` is (H, W, H, W), and both images use the same offset within a window. Otherwise, `a` is (H, W).
    """
    H, W = a.shape[-2:]
    p = np.pad(a, 1)
    if not joint:
        return sum(p[s : s + H, t : t + W] for s in range(3) for t in range(3)) / 9
    return sum(p[s : s + H, t : t + W, s : s + H, t : t + W] for s in range(3) for t in range(3)) / 9


Layers = Sequence[tuple[Array, Array]]
"""(W, b) of each layer, with W : (E, n, m) and b : (E, 1, m)."""


def layers(a: Mapping[str, Array]) -> list[tuple[Array, Array]]:
    """Return the (W, b) of each layer from the arrays W0, b0, W1, b1, ... of a row's inputs."""
    return [(a[f"W{i}"], a[f"b{i}"]) for i in range(sum(name.startswith("W") for name in a))]


def forward(weights: Layers, x: Array) -> tuple[Array, list[Array]]:
    """Return the outputs and the input h of each layer. A layer maps h to z = h W + b; the next input is relu(z)."""
    hs, h = [], x
    for i, (w, b) in enumerate(weights):
        hs.append(h)
        z = h @ w + b
        h = np.maximum(z, 0) if i + 1 < len(weights) else z
    return h, hs


def train(a: Mapping[str, Array], lr: float, momentum: float, steps: int) -> Array:
    """Return the change of f over `steps` steps of full-batch gradient descent, f_T - f_0 : (E, N, C).

        v <- momentum v + gradient,   theta <- theta - lr v

    The loss is 1/(2N) sum |f - y|^2.
    """
    x, y = a["x"].astype(np.float64), a["y"].astype(np.float64)
    weights = [(w.astype(np.float64), b.astype(np.float64)) for w, b in layers(a)]
    speed = [(np.zeros_like(w), np.zeros_like(b)) for w, b in weights]
    start, _ = forward(weights, x)
    for _ in range(steps):
        f, hs = forward(weights, x)
        delta = (f - y) / x.shape[0]
        for i in reversed(range(len(weights))):
            (w, b), (vw, vb) = weights[i], speed[i]
            vw[...] = momentum * vw + np.swapaxes(hs[i], -1, -2) @ delta
            vb[...] = momentum * vb + delta.sum(axis=-2, keepdims=True)
            if i:
                delta = delta @ np.swapaxes(w, -1, -2) * (hs[i] > 0)
            w -= lr * vw
            b -= lr * vb
    return forward(weights, x)[0] - start
