"""Compute spectral norms of weights and of their updates, as in the spectral condition of muP.

    |W| = max |z| / |h|          of the map z = multiplier * h W that the network applies
    natural                      sqrt(fan_out / fan_in), which maps entries of order one to entries of order one
    Gaussian                     multiplier std (sqrt(fan_in) + sqrt(fan_out)), the |W| of a large Gaussian matrix

For a convolution, h and z are whole images, of the same size as in the network.  A bias is treated as a (1, n) matrix,
and a grouped convolution as the matrix (K K C_in / groups, C_out).  See Yang, Simon, Bernstein 2023, condition 1.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from math import prod, sqrt
from typing import Any, cast

import numpy as np

from minintk.arrays import Array, array_namespace, check_finite, check_floating, to_host, to_library
from minintk.diagnostics.layer_io import leaves, trace
from minintk.layers.contract import Tensor
from minintk.layers.conv import BoundConv
from minintk.layers.dense import BoundDense
from minintk.models.model import check_model
from minintk.models.network import Network
from minintk.validate import number

RTOL = 1e-3
"""The default relative accuracy of a norm."""

Map = Callable[[Array], Array]


def spectral_norm(W: Array, *, rtol: float = RTOL) -> Array:
    """Return |W|, the largest singular value of W : ([E], m, n); () or (E,).

    Lanczos steps on W'W give a lower bound on |W|, at least as accurate as that from the same number of power
    iterations.  The iteration stops when eight steps increase this estimate by at most a fraction rtol / 4.

    >>> round(float(spectral_norm(np.diag([3.0, 1.0, 2.0]))), 6)
    3.0
    """
    check_floating("W", W)
    check_finite("W", W)
    rtol = number("rtol", rtol, zero=True)
    if W.ndim not in (2, 3):
        raise ValueError(f"W expects shape (m, n) or (E, m, n), got {tuple(W.shape)}")
    xp = array_namespace(W)
    if 0 in W.shape[-2:]:
        return xp.zeros(W.shape[:-2], dtype=W.dtype)
    if W.shape[-1] > W.shape[-2]:
        W = W.swapaxes(-1, -2)
    size = xp.max(xp.abs(W), axis=(-2, -1), keepdims=True)
    W = W / xp.where(size > 0, size, xp.ones_like(size))  # avoids overflow of W'W
    Wt = W.swapaxes(-1, -2)
    norm = largest_singular_value(lambda q: W @ q, lambda u: Wt @ u, fixed_start(W, (W.shape[-1], 1)), 2, rtol)
    return norm * size[..., 0, 0]


def largest_singular_value(
    apply: Map, adjoint: Map, start: Array, ndims: int, rtol: float = RTOL, clear: float = 0.0
) -> Array:
    """Return the norm of a linear map, () or (E,), by Lanczos steps from start : ([E], *shape).

    ndims : the number of axes in shape.  clear : stop early, after 3 steps at the earliest, if the estimate is below
    `clear`.  For the maps J' of 400 networks, the square of the estimate after 3 steps was 0.54 to 1 times |J'|^2.
    """
    xp, last = array_namespace(start), tuple(range(-ndims, 0))
    size = prod(start.shape[start.ndim - ndims :])
    q, before = start, xp.zeros_like(start)
    alphas: list[Any] = []
    betas: list[Any] = []
    value = np.zeros(())
    for step in range(1, 1 + max(2 * size, 8)):
        beta = xp.sqrt(xp.sum(q * q, axis=last, keepdims=True))
        q = q / xp.where(beta > 0, beta, xp.ones_like(beta))
        v = adjoint(apply(q))
        alpha = xp.sum(q * v, axis=last, keepdims=True)
        before, q = q, v - alpha * q - beta * before
        alphas.append(alpha)
        betas.append(beta)
        if step % 8 == 0 or step in (size, 2 * size) or (step == 3 and clear):
            grown, value = value, _ritz(alphas, betas)
            if step >= size or np.all(value < clear) or (step > 3 and np.all(value - grown <= rtol / 4 * value)):
                break
    lead = start.shape[: start.ndim - ndims]
    return to_library(value.reshape(lead).astype(str(start.dtype)), xp)


def _ritz(alphas: list[Any], betas: list[Any]) -> np.ndarray[Any, Any]:
    """Return the square root of the largest eigenvalue of each member's tridiagonal matrix, (E,) or (1,)."""
    a, b = (np.stack([to_host(x).reshape(-1) for x in k], axis=-1).astype(np.float64) for k in (alphas, betas))
    T = np.zeros((*a.shape, a.shape[-1]))
    i = np.arange(a.shape[-1])
    T[:, i, i], T[:, i[1:], i[:-1]] = a, b[:, 1:]
    return cast("np.ndarray[Any, Any]", np.sqrt(np.maximum(np.linalg.eigvalsh(T)[:, -1], 0)))


def fixed_start(like: Array, shape: tuple[int, ...], lead: int = -2) -> Array:
    """Return normal random numbers : ([E], *shape), the same at every call and for every member."""
    draw = np.random.default_rng(0).standard_normal(shape).astype(str(like.dtype))
    xp = array_namespace(like)
    return xp.asarray(xp.broadcast_to(to_library(draw, xp), (*like.shape[:lead], *shape)), copy=True)


Weighted = BoundDense | BoundConv


def acting(layer: Weighted, W: Array, x: Array) -> tuple[Array, Any]:
    """Return z = multiplier * x W and its Jacobian for the weights W of a layer and x : ([E], N, *before)."""
    p = layer.parameters
    alone: Any = replace(layer, parameters=replace(p, b=None, ends_sweep=False))
    return alone({p.W.name: W}, x)


def _norm_on_images(layer: BoundConv, W: Array, rtol: float) -> Array:
    """Return |W| of a convolution on images with the size that they have in the network, () or (E,)."""
    shape = (1, *layer.before)
    start = fixed_start(W, shape, -len(layer.parameters.W.shape))
    _, J = acting(layer, W, start)
    return largest_singular_value(lambda x: acting(layer, W, x)[0], lambda u: J.vjp(u, None), start, len(shape), rtol)


def spectral_norms(net: Network, theta: Array, *, rtol: float = RTOL) -> dict[str, Array]:
    """Return {tensor name: |W|}, each () or (E,), where |W| includes the multiplier of the tensor.

    theta : ([E], P), the parameters, or a difference of parameters for the norms of an update.

    >>> import minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(400), mn.Tanh(), mn.Dense(400), mn.Tanh(), mn.Dense(1)), (16,))
    >>> norms = spectral_norms(net, net.init(np.random.default_rng(0)))
    >>> {name: round(float(norm / natural_norms(net)[name]), 1) for name, norm in norms.items()}
    {'0.W': 1.1, '2.W': 2.0, '4.W': 20.2}
    """
    places = _places(net)
    net.check_theta(theta)
    check_finite("theta", theta)
    pieces, norms = net.layout.unpack(theta), {}
    for t in net.layout.tensors:
        if isinstance(layer := places.get(t.name), BoundConv):
            norms[t.name] = _norm_on_images(layer, pieces[t.name], rtol)
        else:
            W = pieces[t.name].reshape((*theta.shape[:-1], -1, t.shape[-1]))
            norms[t.name] = float(t.row.multiplier) * spectral_norm(W, rtol=rtol)
    return norms


def _places(net: Network) -> dict[str, Weighted]:
    """Return {name of a weight tensor: its bound layer}, for Dense and convolutions."""
    check_model(net, Network)
    return {f"{name}.W": layer for name, layer in leaves(net.layers) if isinstance(layer, Weighted)}


def _sides(t: Tensor, places: Container[str]) -> tuple[int, int, int]:
    """Return (fan-in, fan-out, window) of a tensor: (1, n, 1) for a bias, (C_in, C_out, K K) for a convolution."""
    window = prod(t.shape[:-2]) if t.name in places else 1
    return prod(t.shape[:-1]) // window, t.shape[-1], window


def natural_norms(net: Network) -> dict[str, float]:
    """Return {tensor name: sqrt(fan_out / fan_in)}: sqrt(C_out / C_in) for a convolution, sqrt(n) for a bias.

    In muP, |W| and |dW| must be of this order (Yang, Simon, Bernstein 2023, condition 1).  `net` must be a `Network`.

    >>> import minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(400), mn.Tanh(), mn.Dense(100)), (25,), mn.SpectralMuP())
    >>> natural_norms(net)
    {'0.W': 4.0, '2.W': 0.5}
    """
    places = _places(net)
    return {t.name: sqrt(o / i) for t in net.layout.tensors for i, o, _ in [_sides(t, places)]}


def gaussian_norms(net: Network) -> dict[str, float]:
    """Return {tensor name: multiplier std sqrt(window) (sqrt(fan_in) + sqrt(fan_out))}: |W| of large Gaussian weights.

    Its square is the edge of the Marchenko-Pastur law.  A draw deviates from it by a fraction O(n^-2/3).  A convolution
    has window = K K: with circular padding and stride 1, its Fourier transform is a Gaussian matrix at each frequency.
    Otherwise, this norm is approximate.  A bias has |W| = multiplier std sqrt(n).  `net` must be a `Network`.

    >>> import minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(400), mn.Tanh(), mn.Dense(100)), (25,), mn.SpectralMuP())
    >>> gaussian_norms(net)
    {'0.W': 5.0, '2.W': 0.75}
    """
    places, found = _places(net), {}
    for t in net.layout.tensors:
        i, o, window = _sides(t, places)
        sides = sqrt(o) + (sqrt(i) if len(t.shape) > 1 else 0.0)
        found[t.name] = t.row.multiplier * t.row.std * sqrt(window) * sides
    return found


def update_alignment(net: Network, theta0: Array, theta: Array, x: Array) -> dict[str, Array]:
    """Return {weight name: |dW h| / (|dW| |h|)}, each () or (E,): 1 if the update acts on features with its full norm.

    theta, theta0 : ([E], P).  dW = W - W_0, and h : ([E], N, *before) is the layer's input at theta0.  |dW| is the
    spectral norm; |h| and |dW h| are Euclidean norms over all examples.  If h is independent of a rank-one dW, the
    ratio is about 1/sqrt(fan_in).  Gradients align with the features that produce them, so the spectral norm is the
    right measure (Yang, Simon, Bernstein 2023, section 3).  Raises ValueError if some W did not move or h is zero.

    >>> import minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(500), mn.Tanh(), mn.Dense(500), mn.Tanh(), mn.Dense(1)), (3,))
    >>> theta, x = net.init(np.random.default_rng(0)), np.ones((1, 3))
    >>> f, J = net.linearize(theta, x)
    >>> {k: round(float(v), 3) for k, v in update_alignment(net, theta, theta + 0.1 * J.vjp(f), x).items()}
    {'0.W': 1.0, '2.W': 1.0, '4.W': 1.0}
    """
    xp, seen, found = array_namespace(theta0, theta, x), trace(net, theta0, x), {}
    net.check(theta, x)
    moved, norms = net.layout.unpack(theta - theta0), spectral_norms(net, theta - theta0)
    for weight, layer in _places(net).items():
        h = seen[weight.removesuffix(".W")].x
        if not bool(xp.all(norms[weight] > 0)):
            raise ValueError(f"update_alignment expects weights that moved, but {weight} did not")
        features = xp.sqrt(xp.sum(h * h, axis=tuple(range(-len(layer.parameters.W.shape), 0))))
        if not bool(xp.all(features > 0)):
            raise ValueError(f"update_alignment expects features that are not all zero, but those before {weight} are")
        z, _ = acting(layer, moved[weight], h)
        size = xp.sqrt(xp.sum(z * z, axis=tuple(range(-len(layer.parameters.W.shape), 0))))
        found[weight] = size / (norms[weight] * features)
    return found


def spectrally_normalised(net: Network, theta: Array, *, rtol: float = 1e-5) -> Array:
    """Return theta with the weights of Dense and convolutions scaled to |W| = sqrt(fan_out / fan_in).

    theta : ([E], P).  |W| includes the multiplier.  Biases are not scaled.  The scaled weights satisfy the spectral
    condition within `rtol` at every width, not only in the limit.  Raises ValueError for weights that are zero.

    >>> import minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(40), mn.Tanh(), mn.Dense(10)), (16,))
    >>> theta = spectrally_normalised(net, net.init(np.random.default_rng(0)))
    >>> {name: round(float(norm), 3) for name, norm in spectral_norms(net, theta).items()}
    {'0.W': 1.581, '2.W': 0.5}
    """
    xp, places, natural = array_namespace(theta), _places(net), natural_norms(net)
    norms, theta = spectral_norms(net, theta, rtol=rtol), xp.asarray(theta, copy=True)
    for name in places:
        if not bool(xp.all(norms[name] > 0)):
            raise ValueError(f"spectrally_normalised expects weights that are not zero, but {name} is")
        piece = theta[..., net.layout.slices[name]]
        piece *= natural[name] / norms[name][..., None]
    return theta
