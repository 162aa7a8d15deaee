"""Measure the tangent kernel during training: its movement, its eigenvectors, and the contribution of each layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minintk.arrays import Array, Host, array_namespace, to_host
from minintk.diagnostics.kernels import effective_rank, relative_distance, target_alignment
from minintk.models.empirical import ntk
from minintk.models.model import Model, check_model
from minintk.validate import whole


@dataclass(frozen=True, eq=False, repr=False)
class KernelPath:
    """Measures of the kernel Theta_t at S times, some relative to Theta_0.  All arrays are on the host.

    t : (S,).  movement : |Theta_t - Theta_0| / |Theta_0|.  alignment : centred alignment with y y', at most 1.  share :
    {layer: its fraction of the kernel's trace}.  effective_rank : between 1 and N.  eigenvalues : the k largest,
    descending.  overlap : |U_0' U_t|_F^2 / j for j = 1, ..., k, where the columns of U are the first j eigenvectors.
    The overlap is 1 if U_t and U_0 span the same space, and about j / N for random spaces.  It is meaningless if
    eigenvalues j and j + 1 are equal.  Eigenvalues and overlap : (S, [E], k).  All other arrays except t : (S, [E]).
    """

    t: Host
    movement: Host
    alignment: Host
    effective_rank: Host
    eigenvalues: Host
    overlap: Host
    share: dict[str, Host]

    def __repr__(self) -> str:
        return f"KernelPath({len(self.t)} times up to t={self.t[-1]:g}, movement {self.movement[-1].mean():.3g})"


def kernel_over_time(model: Model, run: Iterable[Any], x: Array, y: Array, *, k: int = 5) -> KernelPath:
    """Return the `KernelPath` of the NTK on x : (N, *input_shape) along a training run.  y : (N, C), the labels.

    run : snapshots of `mn.train` or moments of `mn.flow`, with theta : ([E], P).  The first of them defines
    Theta_0.  If the model's anchor moves, each snapshot's model is used.  k : the number of eigenvectors, at most N.

    For each time, the function computes one kernel per layer with weights and decomposes the N x N kernel twice.  Use a
    few hundred examples, and snapshots at increasing intervals.  Raises TypeError for a run without theta, ValueError
    for an empty run, and the same exceptions as `ntk` and `target_alignment`.

    >>> import minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(64), mn.Tanh(), mn.Dense(1)), (2,))
    >>> theta0, x, y = net.init(np.random.default_rng(0)), np.eye(2), np.array([[1.0], [-1.0]])
    >>> snapshots = mn.train(net, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(1.0), steps=50, every=10)
    >>> path = kernel_over_time(net, snapshots, x, y, k=1)
    >>> path.t.tolist(), float(path.movement[0]), sorted(path.share)
    ([0.0, 10.0, 20.0, 30.0, 40.0, 50.0], 0.0, ['0', '2'])
    """
    check_model(model)
    k = whole("k", k, high=x.shape[0])
    rows, shares, start = list[tuple[Any, ...]](), list[dict[str, Array]](), None
    for point in run:
        if point.theta is None:
            raise TypeError("kernel_over_time expects a run with theta: the kernel of mn.kernel_flow does not move")
        here = getattr(point, "model", model) if model.anchors() else model
        xp, parts = array_namespace(point.theta, x), layer_kernels(here, point.theta, x)
        kernel = xp.sum(xp.stack(list(parts.values())), axis=0)
        values, vectors = (xp.flip(a, axis=-1)[..., :k] for a in xp.linalg.eigh(kernel))
        first, frame = start = (kernel, vectors) if start is None else start
        aligned = target_alignment(kernel, y, centred=True)
        moved, rank = relative_distance(kernel, first), effective_rank(kernel)
        rows.append((np.asarray(point.t), *map(to_host, (moved, aligned, rank, values, _overlap(frame, vectors)))))
        total = xp.linalg.trace(kernel)
        shares.append({layer: xp.linalg.trace(part) / total for layer, part in parts.items()})
    if start is None:
        raise ValueError("kernel_over_time expects at least one snapshot, got none")
    t, movement, alignment, ranks, eigenvalues, overlap = (np.stack(column) for column in zip(*rows, strict=True))
    share = {layer: np.stack([to_host(part[layer]) for part in shares]) for layer in shares[0]}
    return KernelPath(t, movement, alignment, ranks, eigenvalues, overlap, share)


def _overlap(U: Array, V: Array) -> Array:
    """Return |U_j' V_j|_F^2 / j for j = 1 ... k, where U_j, V_j are the first j columns of U, V : ([E], N, k)."""
    xp = array_namespace(U, V)
    squares = xp.linalg.matrix_transpose(U) @ V
    sums = xp.cumulative_sum(xp.cumulative_sum(squares * squares, axis=-1), axis=-2)
    return xp.linalg.diagonal(sums) / xp.arange(1, U.shape[-1] + 1, dtype=U.dtype)


def layer_kernels(model: Model, theta: Array, x: Array) -> dict[str, Array]:
    """Return {layer: its contribution to the kernel}, each ([E], N, N).  The contributions sum to the kernel."""
    names = list(model.layout.slices)
    layers = {name: name.rpartition(".")[0] or name for name in names}
    return {
        layer: ntk(model, theta, x, scales={name: 0 for name in names if layers[name] != layer})
        for layer in dict.fromkeys(layers.values())
    }
