"""Similarity of two kernels, of a kernel and the labels, or of two layers."""

from __future__ import annotations

from minintk.arrays import Array, array_namespace, check_finite, check_floating
from minintk.models.network import Network, check_model


def alignment(k: Array, other: Array, *, centred: bool = False) -> Array:
    """<K, L>_F / (|K|_F |L|_F), () or (E,), of kernels ([E], N, N); 1 if one is a positive multiple of the other.

    centred : first K <- H K H, H = I - 1 1'/N, which removes the mean feature (Cortes et al. 2012).  ValueError if a
    kernel is zero, also after centring.

    >>> import numpy as np
    >>> k = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> round(float(alignment(k, np.eye(2))), 6), round(float(alignment(k, np.eye(2), centred=True)), 6)
    (0.894427, 1.0)
    """
    xp = array_namespace(k, other)
    for name, a in (("k", k), ("other", other)):
        check_floating(name, a)
        if a.ndim not in (2, 3) or a.shape[-1] != a.shape[-2] or a.shape[-1] != k.shape[-1]:
            raise ValueError(f"{name} expects a kernel ([E], N, N), both of one N, got {tuple(a.shape)}")
        check_finite(name, a)
    before = _frobenius(k), _frobenius(other)
    if centred:
        k, other = _centred(k), _centred(other)
    a, b = _frobenius(k), _frobenius(other)
    rounding = 10 * float(xp.finfo(k.dtype).eps)
    if not bool(xp.all(a > rounding * before[0])) or not bool(xp.all(b > rounding * before[1])):
        raise ValueError("alignment expects kernels that are not zero" + (" after centring" if centred else ""))
    return xp.sum((k / a[..., None, None]) * (other / b[..., None, None]), axis=(-2, -1))


def target_alignment(k: Array, y: Array, *, centred: bool = False) -> Array:
    """Kernel-target alignment: `alignment` of k : ([E], N, N) with y y', y : (N, C); () or (E,), at most 1.

    It measures how much of the kernel agrees with the labels (Cristianini et al. 2001).

    >>> import numpy as np
    >>> y = np.array([[1.0], [1.0], [-1.0]])
    >>> round(float(target_alignment(y @ y.T, y)), 12), round(float(target_alignment(np.eye(3), y)), 6)
    (1.0, 0.57735)
    """
    check_floating("y", y)
    if y.ndim != 2 or y.shape[0] != k.shape[-1]:
        raise ValueError(f"y expects shape (N, C) with N = {k.shape[-1]}, got {tuple(y.shape)}")
    return alignment(k, y @ y.T, centred=centred)


def cka(a: Array, b: Array) -> Array:
    """|A'B|_F^2 / (|A'A|_F |B'B|_F) of centred activations A : ([E], N, p), B : ([E], N, q); () or (E,), in [0, 1].

    Invariant under rotation and scaling of either.  It equals the centred `alignment` of A A' and B B'; the smaller of
    the two forms is computed (Kornblith et al. 2019, linear CKA).  Flatten images first, a.reshape(len(a), -1), as
    `activations` does.  ValueError for other shapes, and for activations that are the same for all examples.

    >>> import numpy as np
    >>> a = np.random.default_rng(0).standard_normal((20, 3))
    >>> turned = a @ np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    >>> round(float(cka(a, 5 * turned)), 12)
    1.0
    """
    xp = array_namespace(a, b)
    for name, m in (("a", a), ("b", b)):
        check_floating(name, m)
        if m.ndim not in (2, 3) or m.shape[:-1] != a.shape[:-1]:
            images = ": images are flattened first, a.reshape(len(a), -1)" if m.ndim > 3 else ""
            raise ValueError(f"{name} expects ([E], N, p), both of one ([E], N), got {tuple(m.shape)}{images}")
        check_finite(name, m)
    a, b = _normalised("a", a), _normalised("b", b)
    if max(a.shape[-1], b.shape[-1]) > a.shape[-2]:
        a, b = (m @ m.swapaxes(-1, -2) for m in (a, b))
        return xp.sum(a * b, axis=(-2, -1)) / (_frobenius(a) * _frobenius(b))
    ab, aa, bb = (_frobenius(p.swapaxes(-1, -2) @ q) for p, q in ((a, b), (a, a), (b, b)))
    return ab**2 / (aa * bb)


def activations(net: Network, theta: Array, x: Array) -> dict[str, Array]:
    """{"0": y_0, "1": y_1, ...}: the output of each layer of the spec, ([E], N, features), images flattened.

    Names are the layers' positions, as in the layout; a container counts as one layer.  TypeError for any model but a
    Network: pass the network inside it, `Linearized.model`.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (3,))
    >>> ys = activations(net, net.init(np.random.default_rng(0)), np.eye(3))
    >>> {name: y.shape for name, y in ys.items()}
    {'0': (3, 8), '1': (3, 8), '2': (3, 1)}
    """
    check_model(net, Network)
    lead = (*theta.shape[:-1], x.shape[0])
    return {str(i): y.reshape((*lead, -1)) for i, y in enumerate(net.layer_outputs(theta, x))}


def _centred(k: Array) -> Array:
    """H k H."""
    xp = array_namespace(k)
    rows = k - xp.mean(k, axis=-2, keepdims=True)
    return rows - xp.mean(rows, axis=-1, keepdims=True)


def _normalised(name: str, a: Array) -> Array:
    """Centred activations of Frobenius norm 1; ValueError if they are zero up to rounding."""
    xp = array_namespace(a)
    top = xp.max(xp.abs(a), axis=(-2, -1), keepdims=True) if a.size else xp.zeros_like(a)
    a = a / xp.where(top > 0, top, xp.ones_like(top))  # so that fourth powers neither overflow nor underflow
    centred = a - xp.mean(a, axis=-2, keepdims=True)
    size = _frobenius(centred)
    if not bool(xp.all(size > 10 * float(xp.finfo(a.dtype).eps) * _frobenius(a))):
        raise ValueError(f"{name} expects activations that differ between examples")
    return centred / size[..., None, None]


def _frobenius(a: Array) -> Array:
    """|a|_F over the last two axes."""
    return array_namespace(a).sqrt(array_namespace(a).sum(a * a, axis=(-2, -1)))
