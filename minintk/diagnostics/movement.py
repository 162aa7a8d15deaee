"""How far the kernel and the weights moved in training."""

from __future__ import annotations

from minintk.arrays import Array, array_namespace, check_finite, check_floating
from minintk.models.empirical import ntk
from minintk.models.network import Model, check_model


def relative_distance(a: Array, b: Array) -> Array:
    """|a - b|_F / |b|_F over the last two axes; for kernels ([E], N, M) the result is () or (E,).

    inf if only b is zero, 0 if both are.  ValueError for other shapes and for values that are not finite.

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
    """|moved| / |start|; inf if only start is zero, 0 if both are."""
    xp = array_namespace(moved, start)
    top = xp.maximum(*(xp.max(xp.abs(a), axis=axes, keepdims=True) for a in (moved, start)))
    top = xp.where(top > 0, top, xp.ones_like(top))  # scaled by this, squares neither overflow nor underflow
    far, size = (xp.sqrt(xp.sum((a / top) ** 2, axis=axes)) for a in (moved, start))
    never = xp.where(far > 0, xp.full_like(far, float("inf")), xp.zeros_like(far))
    return xp.where(size > 0, far / xp.where(size > 0, size, xp.ones_like(size)), never)


def kernel_movement(model: Model, theta0: Array, theta: Array, x: Array) -> Array:
    """|Theta(theta) - Theta(theta0)|_F / |Theta(theta0)|_F, the empirical NTK on x : (N, *input_shape); () or (E,).

    theta0, theta : (P,) or (E, P).  O(n^-1/2) in the width n for a trained network (Lee et al. 2019, eq. 17).

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (3,))
    >>> theta0 = net.init(np.random.default_rng(0))
    >>> float(kernel_movement(net, theta0, theta0, np.eye(3)))
    0.0
    """
    return relative_distance(ntk(model, theta, x), ntk(model, theta0, x))


def weight_movement(model: Model, theta0: Array, theta: Array) -> dict[str, Array]:
    """{tensor name: |w - w_0| / |w_0|}, each () or (E,); theta0, theta : (P,) or (E, P).

    Names as in the layout, "0.W", "2.b".  inf for a tensor that started at zero and moved, 0 if it stayed there.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (3,))
    >>> theta0 = net.init(np.random.default_rng(0))
    >>> {name: round(float(moved), 6) for name, moved in weight_movement(net, theta0, 1.25 * theta0).items()}
    {'0.W': 0.25, '2.W': 0.25}
    """
    check_model(model)
    for name, a in (("theta0", theta0), ("theta", theta)):
        check_floating(name, a)
        if a.ndim not in (1, 2) or a.shape[-1] != model.size:
            raise ValueError(f"{name} expects shape ({model.size},) or (E, {model.size}), got {tuple(a.shape)}")
        check_finite(name, a)
    moved, places = theta - theta0, model.layout.slices.items()
    return {name: _relative(moved[..., at], theta0[..., at], (-1,)) for name, at in places}
