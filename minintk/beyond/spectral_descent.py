"""Implement spectral descent and Muon, whose steps have the spectral norm that muP requires.

    SpectralDescent     dW = - lr s d sqrt(fan_out / fan_in) / multiplier * G / |G|       |G| is the spectral norm
    Muon                dW = - lr s d sqrt(fan_out / fan_in) / multiplier * U V'          G = U diag V'

G is dL/dW or, with momentum, v after v <- momentum v + dL/dW.  s is W's entry in `lr_scales`; d is prod(`Role.depth`).
If s = d = 1, a step of multiplier * W has spectral norm lr sqrt(fan_out / fan_in) at any width.  For Muon, its nonzero
singular values are equal.  The updates satisfy the spectral condition (Yang, Simon, Bernstein 2023, section 5).  Muon
is steepest descent in the spectral norm (Bernstein, Newhouse 2024; Jordan et al. 2024).  For a K x K convolution, W is
a (K K C_in, C_out) matrix, and K |W| bounds the convolution's norm.  A bias is a (1, n) matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt
from typing import Any, ClassVar

from minintk.arrays import Array, array_namespace
from minintk.diagnostics.weight_norms import RTOL, spectral_norm
from minintk.layers.contract import Layout
from minintk.spec.parametrization import Rule
from minintk.training.optimizers import Optimizer

SWEEP = 3e-3
"""One sweep of Newton-Schulz steps maps all singular values above this fraction of the largest to about 1."""
TOLERANCE = 1e-3


@dataclass(frozen=True, repr=False)
class SpectralDescent(Optimizer):
    """Gradient descent with steps of a given spectral norm for each tensor.   layout : the network's `net.layout`.

    lr : relative size of the steps (a number or a schedule).  Steps do not shrink near a minimum, so use a schedule
    that decays to 0.  In the module's formula, s is `lr_scales` of `train` (default 1), not the parametrization's.  A
    tensor with G = 0 is not changed.  Raises ValueError for lr <= 0 and for momentum outside [0, 1).

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(50), mn.Tanh(), mn.Dense(2)), (8,))
    >>> theta, x, y = net.init(np.random.default_rng(0)), np.eye(8), np.ones((8, 2))
    >>> *_, last = mn.train(net, theta, x, y, loss=mn.mse, optimizer=SpectralDescent(0.1, net.layout), steps=1)
    >>> moved = mn.diagnostics.spectral_norms(net, last.theta - theta)
    >>> {name: round(float(moved[name] / natural), 4) for name, natural in mn.diagnostics.natural_norms(net).items()}
    {'0.W': 0.1, '2.W': 0.1}
    """

    layout: Layout
    momentum: float = 0.0
    rule: ClassVar[Rule] = "none"

    def __post_init__(self) -> None:
        if not isinstance(self.layout, Layout):
            raise TypeError(f"{type(self).__name__}(layout=...) expects net.layout, got {self.layout!r}")
        super().__post_init__()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(lr={self.lr!r}{f', momentum={self.momentum!r}' if self.momentum else ''})"

    def step(self, theta: Array, gradient: Array, memory: Any, scales: Array | None) -> None:
        if theta.shape[-1] != self.layout.size:
            raise ValueError(f"theta expects the {self.layout.size} parameters of the layout, got {theta.shape[-1]}")
        lr = self.rate
        if memory is not None:
            memory *= float(self.momentum)
            memory += gradient
            gradient = memory
        for t in self.layout.tensors:
            at, fan_in, fan_out = self.layout.slices[t.name], prod(t.shape[:-1]), t.shape[-1]
            g = gradient[..., at]
            step = self.direction(g.reshape((*g.shape[:-1], fan_in, fan_out))).reshape(g.shape)
            step *= lr * prod(t.role.depth) * sqrt(fan_out / fan_in) / float(t.row.multiplier)
            if scales is not None:
                step *= scales[at]
            theta[..., at] -= step

    def direction(self, G: Array) -> Array:
        """Return G / |G|, or 0, for G : ([E], fan_in, fan_out)."""
        return G / _or_one(spectral_norm(G, rtol=RTOL)[..., None, None])


@dataclass(frozen=True, repr=False)
class Muon(SpectralDescent):
    """Descent along orthogonalised gradients: steps of multiplier * W have singular values lr sqrt(fan_out / fan_in).

    Arguments and errors are those of `SpectralDescent`.  Weights do not change in directions in which G is zero.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(50), mn.Tanh(), mn.Dense(2)), (8,))
    >>> theta, x, y = net.init(np.random.default_rng(0)), np.eye(8), np.eye(8)[:, :2]
    >>> *_, last = mn.train(net, theta, x, y, loss=mn.mse, optimizer=Muon(0.1, net.layout), steps=1)
    >>> step = net.layout.unpack(theta - last.theta)["2.W"] * 50**-0.5                    # times the multiplier of NTK
    >>> np.linalg.svd(step, compute_uv=False).round(5) / np.sqrt(2 / 50)
    array([0.1, 0.1])
    """

    momentum: float = 0.9

    def direction(self, G: Array) -> Array:
        """Return U V' for G = U diag V'."""
        return orthogonalised(G)


def orthogonalised(G: Array) -> Array:
    """Return U V' for G = U diag(s) V' : ([E], m, n), within a tolerance.  Singular values of 0 remain 0.

        X <- 3/2 a X - 1/2 a^3 X X'X,        a^2 = 3 / (1 + low + low^2),        low <- 1/2 a low (3 - a^2 low^2)

    Newton-Schulz steps start from X = G / c with c >= |G|.  The factor a is optimal for values in [low, 1] (Chen, Chow
    2014).  Sweeps from low = SWEEP to 1 are repeated until |X X'X - X|_F <= tol = TOLERANCE.  Then each singular value
    is within about tol / 2 of 1 or tol of 0.  If this fails, eight steps of another iteration move values towards 0 or
    1.  Singular values of G below about 1e-5 |G| (float32) or 1e-13 |G| (float64) can be rounding errors and become 0.

    >>> import numpy as np
    >>> np.linalg.svd(orthogonalised(np.diag([100.0, 1.0, 0.01, 0.0])), compute_uv=False).round(3)
    array([1., 1., 1., 0.])
    """
    xp = array_namespace(G)
    X = G.swapaxes(-1, -2) if G.shape[-1] > G.shape[-2] else G
    X = X / _or_one(xp.max(xp.abs(X), axis=(-2, -1), keepdims=True))  # avoids overflow
    X = X / _or_one(xp.sqrt(_size(X.swapaxes(-1, -2) @ X)))  # sum(s^4)^(1/4) is an upper bound of |X|
    least = 1.0
    while least > float(xp.finfo(X.dtype).eps) ** 0.7:
        low, least = SWEEP, SWEEP * least
        while low < 1 - 1e-4:
            a = sqrt(3 / (1 + low + low * low))
            X = 1.5 * a * X - 0.5 * a**3 * (X @ (X.swapaxes(-1, -2) @ X))
            low *= 0.5 * a * (3 - a * a * low * low)
        if float(xp.max(_size(X @ (X.swapaxes(-1, -2) @ X) - X))) <= TOLERANCE:
            break
    else:  # s <- s^3 (5 - 3 s^2) / 2 separates the remaining values between 0 and 1
        for _ in range(8):
            A = X.swapaxes(-1, -2) @ X
            X = X @ (2.5 * A - 1.5 * (A @ A))
    return X.swapaxes(-1, -2) if G.shape[-1] > G.shape[-2] else X


def _or_one(size: Array) -> Array:
    """Return `size` with each 0 replaced by 1, for use as a divisor."""
    return array_namespace(size).where(size > 0, size, 1 + size)


def _size(X: Array) -> Array:
    """Return the Frobenius norm as an array ([E], 1, 1)."""
    xp = array_namespace(X)
    return xp.sqrt(xp.sum(X * X, axis=(-2, -1), keepdims=True))
