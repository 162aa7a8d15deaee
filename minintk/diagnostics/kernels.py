"""Measure the movement of kernels and weights, and the alignment and effective rank of kernels."""

from __future__ import annotations

from minintk.arrays import Array, array_namespace, check_finite, check_floating
from minintk.models.empirical import ntk
from minintk.models.model import Model, check_model


def relative_distance(a: Array, b: Array) -> Array:
    """Return |a - b|_F / |b|_F over the last two axes: () or (E,) for kernels `a`, `b` of shape ([E], N, M).

    Returns inf if only `b` is zero, and 0 if both are.  Raises ValueError for other shapes and for NaN or infinity.

    >>> import numpy as np
    >>> round(float(relative_distance(np.diag([3.0, 4.0]), np.diag([4.0, 4.0]))), 6)
    0.176777
    """
    for name, k in (("a", a), ("b", b)):
        check_floating(name, k)
        if k.ndim not in (2, 3) or tuple(k.shape[-2:]) != tuple(b.shape[-2:]):
            raise ValueError(f"a, b expect kernels ([E], N, M) of one (N, M), got {tuple(a.shape)}, {tuple(b.shape)}")
        check_finite(name, k)
    return _relative(a - b, b, (-2, -1))


def _relative(moved: Array, start: Array, axes: tuple[int, ...]) -> Array:
    """Return |moved| / |start|; inf if only `start` is zero, and 0 if `moved` and `start` are zero."""
    xp = array_namespace(moved, start)
    top = xp.maximum(*(xp.max(xp.abs(a), axis=axes, keepdims=True) for a in (moved, start)))
    top = xp.where(top > 0, top, xp.ones_like(top))  # scaling avoids overflow and underflow of squares
    far, size = (xp.sqrt(xp.sum((a / top) ** 2, axis=axes)) for a in (moved, start))
    never = xp.where(far > 0, xp.full_like(far, float("inf")), xp.zeros_like(far))
    return xp.where(size > 0, far / xp.where(size > 0, size, xp.ones_like(size)), never)


def kernel_movement(model: Model, theta0: Array, theta: Array, x: Array) -> Array:
    """Return the relative movement of the NTK on x, |Theta(theta) - Theta(theta0)|_F / |Theta(theta0)|_F; () or (E,).

    theta0, theta : (P,) or (E, P).  For smooth activations, Lee et al. 2019 (eq. 17) prove that the movement
    is O(n^-1/2) in the width n.  The actual order is n^-1.  For ReLU, measurements show an order of about n^-3/4.  The
    kernel moves more if the inputs have a small norm (see docs/lazy.md).

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (3,))
    >>> theta0 = net.init(np.random.default_rng(0))
    >>> float(kernel_movement(net, theta0, theta0, np.eye(3)))
    0.0
    """
    return relative_distance(ntk(model, theta, x), ntk(model, theta0, x))


def weight_movement(model: Model, theta0: Array, theta: Array) -> dict[str, Array]:
    """Return {tensor name: |w - w_0| / |w_0|}, each () or (E,), with names as in the layout, such as "0.W".

    theta0, theta : (P,) or (E, P).  The value is inf if w_0 = 0 and w is not 0, and 0 if w = w_0 = 0.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (3,))
    >>> theta0 = net.init(np.random.default_rng(0))
    >>> {name: round(float(moved), 6) for name, moved in weight_movement(net, theta0, 1.25 * theta0).items()}
    {'0.W': 0.25, '2.W': 0.25}
    """
    check_model(model)
    for name, a in (("theta0", theta0), ("theta", theta)):
        model.check_theta(a, name)
        check_finite(name, a)
    moved, places = theta - theta0, model.layout.slices.items()
    return {name: _relative(moved[..., at], theta0[..., at], (-1,)) for name, at in places}


def effective_rank(k: Array) -> Array:
    """Return the effective rank, exp(H(p)) for the entropy H and p = sigma / sum sigma: () or (E,), at least 1.

    k : ([E], N, M), or a full kernel ([E], N, C, M, C), which is reshaped to (N C, M C).  sigma : singular values of k.
    If n singular values are equal and the others are zero, the rank is n (Roy and Vetterli 2007).  For k = J J', sigma
    holds the squared singular values of J (see Samarin et al. 2022, figure 6).  Raises ValueError for a zero matrix.

    >>> import numpy as np
    >>> round(float(effective_rank(np.diag([5.0, 5.0, 5.0, 0.0]))), 12)
    3.0
    """
    check_floating("k", k)
    check_finite("k", k)
    if k.ndim not in (2, 3, 4, 5) or 0 in k.shape:
        raise ValueError(f"k expects shape ([E], N, M) or ([E], N, C, M, C), not empty, got {tuple(k.shape)}")
    if k.ndim > 3:
        k = k.reshape((*k.shape[:-4], k.shape[-4] * k.shape[-3], k.shape[-2] * k.shape[-1]))
    xp = array_namespace(k)
    sigma = xp.linalg.svdvals(k)
    if not bool(xp.all(sigma[..., :1] > 0)):
        raise ValueError("effective_rank expects a matrix that is not zero")
    p = sigma / sigma[..., :1]  # so that the sum cannot overflow
    p = p / xp.sum(p, axis=-1, keepdims=True)
    log_p = xp.log(xp.where(p > 0, p, xp.ones_like(p)))  # 0 log 0 = 0
    return xp.exp(-xp.sum(p * log_p, axis=-1))


def alignment(k: Array, other: Array, *, centred: bool = False) -> Array:
    """Return <K, L>_F / (|K|_F |L|_F), () or (E,), for kernels K = k and L = other, ([E], N, N); 1 if K = c L, c > 0.

    centred : use H K H and H L H with H = I - 1 1'/N, which removes mean features (Cortes et al. 2012).  For A A' and B
    B' with A, B : (N, features) from `Network.layer_outputs`, the centred result is linear CKA, in [0, 1] and invariant
    to rotations of A or B (Kornblith et al. 2019).  Raises ValueError if a kernel is zero before or after centring.

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
    rounding = 10 * float(xp.finfo(k.dtype).eps)
    k, other = (a / xp.where((top := xp.max(abs(a), axis=(-2, -1), keepdims=True)) > 0, top, 1) for a in (k, other))
    before = _frobenius(k), _frobenius(other)
    if centred:
        k, other = _centred(k), _centred(other)
    a, b = _frobenius(k), _frobenius(other)
    if not bool(xp.all(a > rounding * before[0])) or not bool(xp.all(b > rounding * before[1])):
        raise ValueError("alignment expects kernels that are not zero" + (" after centring" if centred else ""))
    return xp.sum((k / a[..., None, None]) * (other / b[..., None, None]), axis=(-2, -1))


def target_alignment(k: Array, y: Array, *, centred: bool = False) -> Array:
    """Return the `alignment` of k : ([E], N, N) with y y' for y : (N, C); () or (E,), at most 1.

    Kernel-target alignment measures how well the kernel agrees with the labels (Cristianini et al. 2001).

    >>> import numpy as np
    >>> y = np.array([[1.0], [1.0], [-1.0]])
    >>> round(float(target_alignment(y @ y.T, y)), 12), round(float(target_alignment(np.eye(3), y)), 6)
    (1.0, 0.57735)
    """
    check_floating("y", y)
    if y.ndim != 2 or y.shape[0] != k.shape[-1]:
        raise ValueError(f"y expects shape (N, C) with N = {k.shape[-1]}, got {tuple(y.shape)}")
    return alignment(k, y @ y.T, centred=centred)


def _centred(k: Array) -> Array:
    """Return the centred kernel H k H with H = I - 1 1'/N."""
    xp = array_namespace(k)
    rows = k - xp.mean(k, axis=-2, keepdims=True)
    return rows - xp.mean(rows, axis=-1, keepdims=True)


def _frobenius(a: Array) -> Array:
    """Return |a|_F over the last two axes."""
    return array_namespace(a).sqrt(array_namespace(a).sum(a * a, axis=(-2, -1)))
