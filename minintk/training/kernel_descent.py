"""Run discrete gradient descent with a frozen kernel, for any loss, momentum, schedule and batch size.

If a linearised network f = f_0 + J (theta - theta_0) is trained by SGD with learning-rate scales S, then theta =
theta_0 + S J' a at every step, for some coefficients `a`.  Hence f = f_0 + K a with K = J S J'.  The scaled gradient is
S J' u with u = dL/df.  SGD is linear in the gradient, so it can update `a` with u instead of theta with S J' u.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Self

import numpy as np

from minintk.arrays import Array, array_namespace, check_finite, check_floating
from minintk.layers.contract import Layout, Tensor
from minintk.models.jacobian import Jacobian
from minintk.models.model import Model
from minintk.spec.parametrization import Row
from minintk.training.losses import Loss
from minintk.training.optimizers import SGD
from minintk.training.train import Descent, OnDemand, Snapshot, State, snapshots


def kernel_descent(
    kernel: Array,
    f0: Array,
    y: Array,
    *,
    loss: Loss,
    optimizer: SGD,
    steps: int,
    batch_size: int | None = None,
    rng: np.random.Generator | None = None,
    every: int = 1,
    resume: State | None = None,
) -> Iterator[Snapshot]:
    """Run `train` with a kernel instead of a model, and yield snapshots of a network with this constant kernel.

    kernel : ([E], M, N) or ([E], M, C, N, C), f0 : ([E], M, C), y : (N, C), as in `kernel_flow`.  `kernel` and `y` are
    read during the run and not copied.  The other arguments are those of `train`.  With the same `rng`, the batches are
    the same as in `train`.  Weight decay pulls theta towards theta_0.
    A snapshot contains f : ([E], M, C) on all points, and the loss on all training points.  Its theta contains the
    coefficients a : ([E], N, C) with f = f_0 + K a, and t is as in `train`.  The weights of the network are theta_0 + S
    J.vjp(a).  With momentum m, time t corresponds to t / (1 - m) in a flow (see `analytic.gradient_descent`).

    Errors and warnings are those of `train` and `kernel_flow`.  Raises TypeError unless the optimiser is `SGD` or
    `Nesterov`, without `towards`.  For the discrete steps, see the supplement of Lee et al. 2019.

    >>> import numpy as np, minintk as mn
    >>> K, f0, y = np.diag([1.0, 3.0]), np.zeros((2, 1)), np.ones((2, 1))
    >>> *_, end = kernel_descent(K, f0, y, loss=mn.mse, optimizer=mn.SGD(lr=0.1), steps=20)
    >>> bool(np.allclose(end.f[:, 0], 1 - (1 - 0.1 * np.array([1.0, 3.0]) / 2) ** 20))      # 1 - (1 - lr K / N)^t
    True
    """
    N, full = check_frozen(kernel, f0, y)
    if not isinstance(optimizer, SGD) or optimizer.towards is not None:
        raise TypeError(f"kernel_descent expects mn.SGD or mn.Nesterov, without towards=, got {optimizer!r}")
    xp = array_namespace(kernel)
    model = FromKernel(kernel, xp.asarray(f0, copy=True), N, full)
    a = xp.zeros((*f0.shape[:-2], model.size), dtype=f0.dtype)
    run = Descent(model, a, model.rows, y, loss, optimizer, steps, batch_size, rng)

    def on_all_points(snap: Snapshot) -> Snapshot:
        f = model.f0 + model.times(kernel, snap.theta)
        a = snap.theta.reshape((*snap.theta.shape[:-1], N, model.outputs))
        return replace(snap, theta=a, f=f, loss=loss(f[..., :N, :], y))

    return OnDemand(map(on_all_points, snapshots(run, steps, every, resume)), "mn.kernel_descent(...)")


def check_frozen(kernel: Array, f0: Array, y: Array) -> tuple[int, bool]:
    """Return N and whether the kernel couples outputs.  Raise an error unless the kernel, f0 and y are compatible."""
    array_namespace(kernel, f0, y)
    for name, a in (("kernel", kernel), ("f0", f0)):
        check_floating(name, a)
        check_finite(name, a)
        if a.dtype != kernel.dtype:
            raise TypeError(f"{name} must have the dtype of the kernel, {kernel.dtype}, got {a.dtype}")
    if f0.ndim not in (2, 3) or y.ndim != 2:
        raise ValueError(f"f0 expects shape ([E], M, C) and y (N, C), got {tuple(f0.shape)} and {tuple(y.shape)}")
    (M, C), N, lead = f0.shape[-2:], y.shape[0], tuple(f0.shape[:-2])
    if tuple(kernel.shape) not in {(*e, *k) for e in ((), lead) for k in ((M, N), (M, C, N, C))}:
        want = f"([E], {M}, {N}), or ([E], {M}, {C}, {N}, {C}), rows for every point of f0, columns for those of y"
        raise ValueError(f"kernel expects shape {want}, got {tuple(kernel.shape)}")
    if not 1 <= N <= M:
        raise ValueError(f"y expects at least 1 and at most the {M} points of f0, training points first, got {N}")
    return N, tuple(kernel.shape[-4:]) == (M, C, N, C) and kernel.ndim >= 4


def product(K: Array, u: Array, full: bool) -> Array:
    """Return K u : (..., M, C) for u : (..., N, C) and K : ([E], M, N), or ([E], M, C, N, C) if `full`."""
    if not full:
        return K @ u
    M, C, N, _ = K.shape[-4:]
    Ku = K.reshape((*K.shape[:-4], M * C, N * C)) @ u.reshape((*u.shape[:-2], N * C, 1))
    return Ku.reshape((*Ku.shape[:-2], M, C))


class FromKernel(Model):
    """The model f = f_0 + K a with parameters a : ([E], N C).  The inputs are row indices, `rows` : (N, 1)."""

    input_shape = (1,)

    def __init__(self, kernel: Array, f0: Array, N: int, full: bool) -> None:
        xp = array_namespace(kernel)
        self.kernel, self.f0, self.N, self.full, self.outputs = kernel, f0, N, full, int(f0.shape[-1])
        self.rows = xp.astype(xp.arange(N), f0.dtype)[:, None]
        self.layout = Layout((Tensor("a", (N, self.outputs), Row(1.0, 0.0)),))

    @property
    def footprint(self) -> tuple[int, int]:
        return self.N, self.N

    def members(self, which: slice) -> Self:
        if self.f0.ndim == 2:
            return self
        part = copy(self)
        part.f0 = self.f0[which]
        part.kernel = self.kernel[which] if self.kernel.ndim % 2 else self.kernel
        return part

    def forward(self, theta: Array, x: Array) -> tuple[Array, Jacobian]:
        J = InCoefficients(self, theta, x)
        return self.f0[..., J.at, :] + J.push(theta), J

    def times(self, k: Array, a: Array) -> Array:
        """Return the product k a : (..., B, C), where k contains B rows of the kernel."""
        return product(k, a.reshape((*a.shape[:-1], self.N, self.outputs)), self.full)

    def __repr__(self) -> str:
        return f"FromKernel({tuple(self.kernel.shape)})"


class InCoefficients(Jacobian):
    """The Jacobian df/da on the rows `at`: J v = K[at] v.  Under the inner product v' K w, J' u is u there, else 0."""

    def __init__(self, model: FromKernel, theta: Array, x: Array) -> None:
        self.model, self.size, self.like = model, model.size, theta
        self.outputs, self.ensemble = (x.shape[0], model.outputs), theta.shape[0] if theta.ndim == 2 else None
        everything = x.shape[0] == model.N and x is model.rows  # true for `rows` itself, but not for a batch
        self.at = slice(model.N) if everything else array_namespace(x).astype(x[:, 0], np.int64)

    def push(self, v: Array) -> Array:
        kernel, after = self.model.kernel, (slice(None),) * (3 if self.model.full else 1)
        return self.model.times(kernel[(..., self.at, *after)], v)

    def pull(self, u: Array, out: Array) -> None:
        out[...] = 0
        out.reshape((*out.shape[:-1], self.model.N, self.model.outputs))[..., self.at, :] = u
