"""Similarity of two kernels, of a kernel and the labels, or of two layers by their kernels."""

from __future__ import annotations

from minintk.arrays import Array, array_namespace, check_finite, check_floating
from minintk.models.network import Network, check_model


def alignment(k: Array, other: Array, *, centred: bool = False) -> Array:
    """<K, L>_F / (|K|_F |L|_F), () or (E,), of kernels ([E], N, N); 1 if one is a positive multiple of the other.

    centred : first K <- H K H, H = I - 1 1'/N, which removes the mean feature (Cortes et al. 2012).  Of A A' and B B',
    A, B : (N, features) the `activations` of two layers, this is linear CKA, in [0, 1] and unchanged by rotations of
    either (Kornblith et al. 2019).  ValueError if a kernel is zero, also after centring.

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


def _frobenius(a: Array) -> Array:
    """|a|_F over the last two axes."""
    return array_namespace(a).sqrt(array_namespace(a).sum(a * a, axis=(-2, -1)))
