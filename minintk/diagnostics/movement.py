"""How far a kernel and the weights moved.

kernel_movement    |Theta_T - Theta_0|_F / |Theta_0|_F            0 where the network stays its linearisation
weight_movement    |W_T - W_0| / |W_0|, tensor by tensor
"""

from __future__ import annotations

from minintk.arrays import Array, array_namespace
from minintk.kernels import ntk
from minintk.network import Model


def relative_distance(a: Array, b: Array) -> Array:
    """|a - b|_F / |b|_F over the last two axes: of kernels ([E], N, M) the result is () or (E,).

    >>> import numpy as np
    >>> round(float(relative_distance(np.diag([3.0, 4.0]), np.diag([4.0, 4.0]))), 6)
    0.176777
    """
    xp = array_namespace(a, b)
    return xp.sqrt(xp.sum((a - b) ** 2, axis=(-2, -1)) / xp.sum(b**2, axis=(-2, -1)))


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

    The name is the layout's, "0.W", "2.b".  inf for a tensor that started at zero and moved, 0 where it stayed there.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (3,))
    >>> theta0 = net.init(np.random.default_rng(0))
    >>> {name: round(float(moved), 6) for name, moved in weight_movement(net, theta0, 1.25 * theta0).items()}
    {'0.W': 0.25, '2.W': 0.25}
    """
    xp = array_namespace(theta0, theta)
    movement = {}
    for name, where in model.layout.slices.items():
        w0, w = theta0[..., where], theta[..., where]
        before, moved = xp.sqrt(xp.sum(w0**2, axis=-1)), xp.sqrt(xp.sum((w - w0) ** 2, axis=-1))
        some = xp.where(before > 0, before, xp.ones_like(before))
        never = xp.where(moved > 0, xp.full_like(moved, float("inf")), xp.zeros_like(moved))
        movement[name] = xp.where(before > 0, moved / some, never)
    return movement
