"""Spectral descent: every update has the spectral norm that muP asks for, by construction.

    dW = - lr s sqrt(fan_out / fan_in) / multiplier * G / |G|         G the gradient of W, |G| its spectral norm

so the effective weights, multiplier included, move by lr sqrt(fan_out / fan_in) at every width in any parametrization:
the second half of the spectral condition holds exactly (Yang, Simon, Bernstein 2023, section 5).  A kernel of K x K
pixels is treated as the matrix (K K C_in, C_out), whose norm times K bounds that of the convolution; a bias as (1, n).
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
from minintk.training.schedules import Schedule
from minintk.validate import number


@dataclass(frozen=True, repr=False)
class SpectralDescent(Optimizer):
    """Normalised gradient descent, tensor by tensor, for networks with this layout, `net.layout`.

    lr : the relative size of a step, a number or a schedule.  s above are the `lr_scales` of `train`, 1 by default; the
    parametrization's own rates are not used.  A tensor with zero gradient does not move.  Steps do not shrink by
    themselves near a minimum: use a schedule that falls to 0.  Raises ValueError for lr <= 0.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(50), mn.Tanh(), mn.Dense(2)), (8,))
    >>> theta, x, y = net.init(np.random.default_rng(0)), np.eye(8), np.ones((8, 2))
    >>> *_, last = mn.train(net, theta, x, y, loss=mn.mse, optimizer=SpectralDescent(0.1, net.layout), steps=1)
    >>> moved = mn.diagnostics.spectral_norms(net, last.theta - theta)
    >>> {name: round(float(moved[name] / natural), 4) for name, natural in mn.diagnostics.natural_norms(net).items()}
    {'0.W': 0.1, '2.W': 0.1}
    """

    lr: float | Schedule
    layout: Layout
    rule: ClassVar[Rule] = "none"

    def __post_init__(self) -> None:
        if not isinstance(self.lr, Schedule):
            number("SpectralDescent(lr=...)", self.lr)
        if not isinstance(self.layout, Layout):
            raise TypeError(f"SpectralDescent(layout=...) expects net.layout, got {self.layout!r}")

    def __repr__(self) -> str:
        return f"SpectralDescent(lr={self.lr!r})"

    def init(self, theta: Array) -> None:
        return None

    def step(self, theta: Array, gradient: Array, memory: Any, scales: Array | None) -> None:
        if theta.shape[-1] != self.layout.size:
            raise ValueError(f"theta expects the {self.layout.size} parameters of the layout, got {theta.shape[-1]}")
        xp, lr = array_namespace(theta), self.rate
        for t in self.layout.tensors:
            at, fan_in, fan_out = self.layout.slices[t.name], prod(t.shape[:-1]), t.shape[-1]
            g = gradient[..., at]
            norm = spectral_norm(g.reshape((*g.shape[:-1], fan_in, fan_out)), rtol=RTOL)[..., None]
            g *= lr * sqrt(fan_out / fan_in) / float(t.row.multiplier)
            g /= xp.where(norm > 0, norm, xp.ones_like(norm))
            if scales is not None:
                g *= scales[at]
            theta[..., at] -= g
