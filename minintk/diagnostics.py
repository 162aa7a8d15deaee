"""Diagnostics: how far a kernel and the weights moved, and how a quantity falls with the width.

    kernel_movement    |Theta_T - Theta_0|_F / |Theta_0|_F            0 where the network stays its linearisation
    weight_movement    |W_T - W_0| / |W_0|, tensor by tensor
    power_law          v = A n^b fitted over widths n, the exponent b with a bootstrap interval over seeds

They take any model, one network or an ensemble, and arrays of either library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, to_host
from minintk.kernels import ntk
from minintk.network import Model


def relative_distance(a: Array, b: Array) -> Array:
    """|a - b|_F / |b|_F over the last two axes: of kernels ([E], N, M) the result is () or (E,).

    >>> round(float(relative_distance(np.diag([3.0, 4.0]), np.diag([4.0, 4.0]))), 6)
    0.176777
    """
    xp = array_namespace(a, b)
    return xp.sqrt(xp.sum((a - b) ** 2, axis=(-2, -1)) / xp.sum(b**2, axis=(-2, -1)))


def kernel_movement(model: Model, theta0: Array, theta: Array, x: Array) -> Array:
    """|Theta(theta) - Theta(theta0)|_F / |Theta(theta0)|_F, the empirical NTK on x : (N, *input_shape); () or (E,).

    theta0, theta : (P,) or (E, P).  O(n^-1/2) in the width n for a trained network (Lee et al. 2019, eq. 17).

    >>> import minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (3,))
    >>> theta0 = net.init(np.random.default_rng(0))
    >>> float(kernel_movement(net, theta0, theta0, np.eye(3)))
    0.0
    """
    return relative_distance(ntk(model, theta, x), ntk(model, theta0, x))


def weight_movement(model: Model, theta0: Array, theta: Array) -> dict[str, Array]:
    """{tensor name: |w - w_0| / |w_0|}, each () or (E,); theta0, theta : (P,) or (E, P).

    The name is the layout's, "0.W", "2.b".  inf for a tensor that started at zero and moved, 0 where it stayed there.

    >>> import minintk as mn
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


# ----------------------------------------------------------------------------------------- power laws


@dataclass(frozen=True, eq=False)
class PowerLaw:
    """v = A n^b, fitted; see `power_law`.

    exponent : b.  prefactor : A.  error : the standard error of b.  interval : (low, high) for b, at `confidence`.
    widths : (K,).  draws : (R, 2), log A and b of the R bootstrap fits.
    """

    exponent: float
    prefactor: float
    error: float
    interval: tuple[float, float]
    confidence: float
    widths: np.ndarray[Any, Any]
    draws: np.ndarray[Any, Any]

    def __call__(self, n: Any) -> Any:
        """A n^b at widths n."""
        return self.prefactor * np.asarray(n, dtype=np.float64) ** self.exponent

    def band(self, n: Any) -> tuple[Any, Any]:
        """(low, high) at each width n: the interval of the fitted line there, from the bootstrap's lines."""
        logs = self.draws[:, :1] + self.draws[:, 1:] * np.log(np.asarray(n, dtype=np.float64))
        tail = 50 * (1 - self.confidence)
        low, high = np.exp(np.percentile(logs, [tail, 100 - tail], axis=0))
        return low, high


def power_law(
    widths: Sequence[float],
    values: Sequence[Array],
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    rng: np.random.Generator | None = None,
) -> PowerLaw:
    """The exponent b of v = A n^b, from positive measurements of several seeds at each width.

        log v_ns = log A + b log n + e_ns,    least squares over all widths n and seeds s

    so a width counts by its number of seeds.  The interval is a bootstrap over seeds: the deviations e of every seed
    from the mean of its own width are pooled, scaled by sqrt(S/(S-1)) for the mean they were measured from, drawn anew
    for each width and seed, and refitted.  Pooling rests on log v scattering alike at all widths (as it does where
    sqrt(n) v or n v has a limiting law); it is what lets a width with two seeds take part.  Deviations of the widths'
    means from the line are not scatter over seeds and stay out of the interval.

    widths : (K,), two different ones at least.  values : K arrays, values[i] : (S_i,) at widths[i], two seeds or more
        at one of them.  rng : of the bootstrap, numpy.random.default_rng(0) unless given.
    ValueError for measurements that are not positive and finite, and where there are too few.

    >>> rng = np.random.default_rng(1)
    >>> widths = [64, 128, 256, 512]
    >>> law = power_law(widths, [3 / n**0.5 * np.exp(0.1 * rng.standard_normal(8)) for n in widths])
    >>> round(law.exponent, 2), law.interval[0] < -0.5 < law.interval[1]
    (-0.53, True)
    """
    n = np.asarray(widths, dtype=np.float64)
    v = [np.asarray(to_host(value), dtype=np.float64) for value in values]
    if n.ndim != 1 or len(n) != len(v) or len(set(n)) < 2 or not np.all((n > 0) & np.isfinite(n)):
        raise ValueError(f"power_law expects two or more widths > 0, values for each, got {widths!r}, {len(v)} arrays")
    for width, value in zip(n, v, strict=True):
        if value.ndim != 1 or not len(value) or not np.all((value > 0) & np.isfinite(value)):
            raise ValueError(f"power_law expects (S,) positive finite values, got {value!r} at width {width:g}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence expects a number between 0 and 1, got {confidence!r}")
    rng = np.random.default_rng(0) if rng is None else rng
    S = np.array([len(value) for value in v])
    logs = np.concatenate([np.log(value) for value in v])
    pooled = [(np.log(a) - np.log(a).mean()) * (len(a) / (len(a) - 1)) ** 0.5 for a in v if len(a) > 1]
    if not pooled:
        raise ValueError("power_law expects two or more seeds at one width at least: there is no interval without them")
    scatter = np.concatenate(pooled)

    log_n = np.repeat(np.log(n), S)
    design = np.stack([np.ones_like(log_n), log_n], axis=1)
    solve = np.linalg.pinv(design)
    log_A, b = solve @ logs
    drawn = rng.choice(scatter, size=(resamples, len(logs)))
    draws = (solve @ logs) + drawn @ solve.T
    tail = 50 * (1 - confidence)
    low, high = np.percentile(draws[:, 1], [tail, 100 - tail])
    error = float(np.sqrt(np.sum(scatter**2) / len(scatter)) * np.linalg.norm(solve[1]))
    return PowerLaw(float(b), float(np.exp(log_A)), error, (float(low), float(high)), confidence, n, draws)
