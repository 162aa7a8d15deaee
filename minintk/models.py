"""A network under a magnifying glass: the same interface, other functions of theta.

    Linearized               f_lin(theta) = f(theta_0) + J(theta_0) (theta - theta_0)          Lee et al. 2019, eq. (5)
    IterativelyLinearized    the same, with theta_0 moved to the current theta every K steps
    Centred                  alpha (f(theta) - f(theta_0))                                      Geiger et al. 2020

They nest, in any order, and `train`, `ntk` and every diagnostic take any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from math import inf
from typing import Self

import numpy as np

from minintk.arrays import Array, array_namespace
from minintk.jacobian import Jacobian, Scaled
from minintk.layout import Layout
from minintk.network import Model
from minintk.structure import Shape


class _Anchored(Model):
    """A model built on another one and on a point theta_0 : (P,), shared by an ensemble, or (E, P)."""

    def __init__(self, model: Model, theta0: Array) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"{type(self).__name__} expects a model such as mn.Network(...), got {model!r}")
        if theta0.ndim not in (1, 2) or theta0.shape[-1] != model.size:
            raise ValueError(f"theta0 expects shape ({model.size},) or (E, {model.size}), got {tuple(theta0.shape)}")
        self.model = model
        self.theta0 = array_namespace(theta0).asarray(theta0, copy=True)  # training may move the caller's array

    @property
    def input_shape(self) -> Shape:  # type: ignore[override]
        return self.model.input_shape

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        return self.model.layout

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return self.model.outputs

    @property
    def footprint(self) -> tuple[int, int]:
        return self.model.footprint

    @property
    def coupled(self) -> bool:
        return self.model.coupled

    def check(self, theta: Array, x: Array) -> None:
        self.model.check(theta, x)
        array_namespace(theta, self.theta0)
        if theta.dtype != self.theta0.dtype:
            raise TypeError(f"theta and theta0 must be of one dtype, got {theta.dtype} and {self.theta0.dtype}")
        if self.theta0.ndim == 2 and theta.shape != self.theta0.shape:
            raise ValueError(f"theta expects the shape of theta0, {tuple(self.theta0.shape)}, got {tuple(theta.shape)}")

    def _anchor(self, theta: Array) -> Array:
        """theta_0, with an ensemble axis where theta has one."""
        return (
            self.theta0
            if self.theta0.shape == theta.shape
            else array_namespace(theta).broadcast_to(self.theta0, theta.shape)
        )

    def _moved(self, model: Model, theta0: Array) -> Self:
        """The same on another model, at another theta_0: a view will do, nobody writes to it."""
        other = copy(self)
        other.model, other.theta0 = model, theta0
        return other

    def members(self, which: slice) -> Self:
        return self._moved(self.model.members(which), self.theta0[which] if self.theta0.ndim == 2 else self.theta0)

    def anchors(self) -> dict[str, Array]:
        return {f"model.{name}": a for name, a in self.model.anchors().items()}

    def anchored(self, anchors: Mapping[str, Array]) -> Self:
        inner = {name.removeprefix("model."): a for name, a in anchors.items() if name.startswith("model.")}
        return self._moved(self.model.anchored(inner), self.theta0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, theta0)"


class Linearized(_Anchored):
    """f_lin(theta) = f(theta_0) + J(theta_0) (theta - theta_0)   (Lee et al. 2019, eq. 5).

    Its Jacobian is J(theta_0) at every theta: training it is the closed-form theory of wide networks.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (3,))
    >>> theta0 = net.init(np.random.default_rng(0))
    >>> x = np.eye(3)
    >>> bool(np.all(Linearized(net, theta0)(theta0, x) == net(theta0, x)))
    True
    """

    def advance(self, theta: Array) -> Linearized:
        return self

    def _linearize(self, theta: Array, x: Array) -> tuple[Array, Jacobian]:
        theta0 = self._anchor(theta)
        f0, J = self.model._linearize(theta0, x)
        return f0 + J._jvp(theta - theta0), J


class Centred(_Anchored):
    """alpha (f(theta) - f(theta_0)): zero at the start, lazier the larger alpha is (Geiger et al. 2020).

    Its tangent kernel is alpha^2 times the model's.  Raises ValueError unless alpha is a finite number > 0.
    """

    def __init__(self, model: Model, theta0: Array, alpha: float) -> None:
        super().__init__(model, theta0)
        if not 0 < alpha < inf:
            raise ValueError(f"Centred(alpha=...) expects a finite number > 0, got {alpha!r}")
        self.alpha = float(alpha)
        self._start = model  # f(theta_0) stays the same function, also where the model re-anchors

    def advance(self, theta: Array) -> Centred:
        moved = self.model.advance(theta)
        if moved is self.model:
            return self
        return self._moved(moved, self.theta0)

    def __repr__(self) -> str:
        return f"Centred({self.model!r}, theta0, alpha={self.alpha:g})"

    def members(self, which: slice) -> Self:
        part = super().members(which)
        part._start = self._start.members(which)
        return part

    def _linearize(self, theta: Array, x: Array) -> tuple[Array, Jacobian]:
        f, J = self.model._linearize(theta, x)
        f0, _ = self._start._linearize(self._anchor(theta), x)
        return self.alpha * (f - f0), Scaled(J, self.alpha)


class IterativelyLinearized(_Anchored):
    """The linearised model whose theta_0 moves to the current theta every K = `every` steps.

    every = 1 is gradient descent on the model itself, every = inf is `Linearized`.  Raises ValueError unless `every`
    is a whole number >= 1 or inf.
    """

    def __init__(self, model: Model, theta0: Array, every: float) -> None:
        super().__init__(model, theta0)
        if isinstance(every, bool) or not every >= 1 or (every != inf and every != int(every)):
            raise ValueError(f"IterativelyLinearized(every=...) expects a whole number >= 1, or inf, got {every!r}")
        self.every = every
        self.step = 0

    def advance(self, theta: Array) -> IterativelyLinearized:
        step = self.step + 1
        again = step % self.every == 0
        theta0 = array_namespace(theta).asarray(theta, copy=True) if again else self.theta0
        moved = self._moved(self.model.advance(theta), theta0)
        moved.step = step
        return moved

    def anchors(self) -> dict[str, Array]:
        return {"theta0": self.theta0, "step": np.asarray(self.step), **super().anchors()}

    def anchored(self, anchors: Mapping[str, Array]) -> Self:
        moved = super().anchored(anchors)
        moved.theta0, moved.step = anchors["theta0"], int(anchors["step"])
        return moved

    def __repr__(self) -> str:
        return f"IterativelyLinearized({self.model!r}, theta0, every={self.every:g})"

    def _linearize(self, theta: Array, x: Array) -> tuple[Array, Jacobian]:
        theta0 = self._anchor(theta)
        f0, J = self.model._linearize(theta0, x)
        return f0 + J._jvp(theta - theta0), J
