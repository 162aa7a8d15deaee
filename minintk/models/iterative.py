"""Define a linearised model whose theta_0 is updated during training (iterative linearised training).

    f_lin(theta) = f(theta_0) + J(theta_0) (theta - theta_0),     theta_0 <- theta   after the steps given by `every`

With every = 1, it trains like the model itself, and with every = inf (without Dropout masks) like `Linearized`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Self

import numpy as np

from minintk.arrays import Array, array_namespace, own, to_host, to_library
from minintk.models.model import Model
from minintk.models.wrappers import Linearized
from minintk.validate import number


@dataclass(frozen=True, eq=False, repr=False)
class Moved:
    """A rule for `IterativelyLinearized`: update theta_0 if the tangent features have changed by more than `fraction`:

        |J(theta)' u - J(theta_0)' u|  >  fraction |J(theta_0)' u|,      u ~ N(0, 1) : (n, C), fixed

    J is the Jacobian at the n inputs of the probe.  For any matrix A, the mean of |A' u|^2 over u is |A|_F^2, so one u
    estimates the relative change of J.  Whatever C is, each step needs one additional forward and backward sweep.

    probe : (n, *input_shape), e.g. a tenth of a batch of training inputs.  fraction : a number > 0.  seed : u's seed.

    Raises ValueError if the fraction or the probe is invalid.

    >>> import minintk as mn
    >>> x, y = mn.datasets.digits().subset(40, np.random.default_rng(0)).parity()
    >>> net = mn.Network(mn.zoo.mlp(1, 64, 1), (64,))
    >>> theta0 = net.init(np.random.default_rng(0))
    >>> model = mn.IterativelyLinearized(net, theta0, Moved(0.1, x[:10]))
    >>> *_, last = mn.train(model, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(0.2), steps=50)
    >>> bool(np.any(last.model.theta0 != theta0))                                  # it has been linearised again
    True
    """

    fraction: float
    probe: Array
    seed: int = 0

    def __post_init__(self) -> None:
        number("Moved(fraction=...)", self.fraction)
        if getattr(self.probe, "ndim", 0) < 2 or self.probe.shape[0] == 0:
            raise ValueError(f"Moved(probe=...) expects some inputs (n, *input_shape), got {self.probe!r}")
        object.__setattr__(self, "probe", own(self.probe))
        object.__setattr__(self, "_drawn", {})  # {outputs: u}, so that u is drawn and moved to a GPU only once

    def __repr__(self) -> str:
        return f"Moved({self.fraction:g}, probe {tuple(self.probe.shape)}, seed={self.seed})"

    def features(self, model: Model, theta: Array) -> Array:
        """Return the tangent features J(theta)' u : ([E], P)."""
        f, J = model.forward(theta, self.probe)
        xp, drawn = array_namespace(f), vars(self)["_drawn"]
        if f.shape[-1] not in drawn:
            u = np.random.default_rng(self.seed).standard_normal(f.shape[-2:])
            drawn[f.shape[-1]] = to_library(u.astype(str(f.dtype)), xp)
        return J.vjp(xp.broadcast_to(drawn[f.shape[-1]], f.shape))


class IterativelyLinearized(Linearized):
    """A linearised model whose theta_0 is updated during training (iterative linearised training).

    every : a whole number K >= 1 (update theta_0 after every K steps), inf (never update), an increasing sequence
    (update after these steps), or `Moved(fraction, probe)` (update when the tangent features have changed).
    With every = 1, it trains like `model` itself, and with every = inf (without Dropout masks) like `Linearized`.
    linearizations : () or (E,), the number of linearisation points so far.  Raises ValueError if `every` is invalid.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (3,))
    >>> theta0, x, y = net.init(np.random.default_rng(0)), np.eye(3), np.ones((3, 1))
    >>> how = {"loss": mn.mse, "optimizer": mn.SGD(lr=0.3), "steps": 60}
    >>> for every in (20, (1, 3, 10, 30), Moved(0.2, x)):
    ...     *_, end = mn.train(IterativelyLinearized(net, theta0, every), theta0, x, y, **how)
    ...     print(int(end.model.linearizations))
    4
    5
    5
    """

    def __init__(self, model: Model, theta0: Array, every: float | Sequence[int] | Moved) -> None:
        super().__init__(model, theta0)
        self.every = _checked(every)
        self.step = 0
        self.linearizations = _ones(self.theta0)
        self._features: Array | None = None  # J(theta_0)' u, used by Moved
        if isinstance(self.every, Moved):
            self.check(self.theta0, self.every.probe)

    @property
    def reach(self) -> float:
        """Estimate the largest lr lambda for stable descent on a squared loss.  lambda is the sharpness at theta_0.

            1 + 3^(1/K) for odd K, so 4 for K = 1 and 2.44 for K = 3;     2 for even K, and for K = inf

        Along the eigenvector of lambda, K steps multiply the residual r by q = (1 - lr lambda)^K, as does one step with
        learning rate a = (1 - q) / lambda.  If lr lambda > 2, r grows until the curvature changes:

            r <- (1 - a lambda + a^2 r^2 / n) r,     lambda <- lambda + (a lambda - 4) a r^2 / n

        for two linear layers of large width n and one example (Lewkowycz et al. 2020 for K = 1).  The curvature falls
        if 0 < a lambda < 4, i.e. -3 < q < 1.  For even K, q > 1 and a < 0, so the residual and the curvature grow.

        The formula applies to linear networks with one hidden layer.  For K = 1, we measured the largest stable rate at
        width 256 on eight images of digits.  For one tanh layer, it agreed with the formula.  It was 1.1 to 1.5 times
        as large for two tanh layers, and up to twice as large for ReLU.  Raises TypeError unless `every` is a number.

        >>> import minintk as mn
        >>> net = mn.Network(mn.Dense(1), (2,))
        >>> [round(IterativelyLinearized(net, np.zeros(2), K).reach, 2) for K in (1, 2, 3, 5, inf)]
        [4.0, 2.0, 2.44, 2.25, 2.0]
        """
        if not isinstance(self.every, (int, float)):
            raise TypeError(f"reach expects every=K, a number, got {self.every!r}")
        return 1 + 3 ** (1 / self.every) if self.every % 2 == 1 else 2.0

    def advance(self, theta: Array) -> IterativelyLinearized:
        model = self.model.advance(theta)
        if model is self.model and self.every == inf:
            return self
        moved = self._moved(model, self.theta0)
        moved.step = self.step + 1
        if isinstance(self.every, Moved):
            moved._where_features_moved(self.every, theta)
        elif moved.step in self.every if isinstance(self.every, tuple) else moved.step % self.every == 0:
            moved.theta0 = array_namespace(theta).asarray(theta, copy=True)
            moved.linearizations = self.linearizations + _ones(theta)
        return moved

    def _where_features_moved(self, rule: Moved, theta: Array) -> None:
        """Update theta_0 and the tangent features of the members that the rule selects."""
        xp = array_namespace(theta)
        theta0 = self._anchor(theta)
        then = rule.features(self.model, theta0) if self._features is None else self._features
        now = rule.features(self.model, theta)
        moved, size = (xp.sqrt(xp.sum(a * a, axis=-1)) for a in (now - then, then))
        again = moved > float(rule.fraction) * size
        self.linearizations = self.linearizations + again
        self._features, self.theta0 = (xp.where(again[..., None], a, b) for a, b in ((now, then), (theta, theta0)))

    def members(self, which: slice) -> Self:
        part = super().members(which)
        if part.linearizations.ndim:
            part.linearizations = part.linearizations[which]
        if part._features is not None and part._features.ndim == 2:
            part._features = part._features[which]
        return part

    def anchors(self) -> dict[str, Array]:
        mine = {"theta0": self.theta0, "step": np.asarray(self.step), "linearizations": self.linearizations}
        return mine | super().anchors()

    def anchored(self, anchors: Mapping[str, Array]) -> Self:
        moved = super().anchored(anchors)
        moved.theta0, moved.step = anchors["theta0"], int(anchors["step"])
        moved.linearizations = to_library(to_host(anchors["linearizations"]), array_namespace(moved.theta0))
        moved._features = None
        return moved

    def __repr__(self) -> str:
        every = f"{self.every:g}" if isinstance(self.every, (int, float)) else repr(self.every)
        return f"IterativelyLinearized({self.model!r}, theta0, every={every})"


def _ones(theta: Array) -> Array:
    """Return an integer array of shape () or (E,), filled with ones."""
    xp = array_namespace(theta)
    return xp.ones(tuple(theta.shape[:-1]), dtype=xp.int64)


def _checked(every: Any) -> float | tuple[int, ...] | Moved:
    """Return `every` as an int, inf, a tuple of ints or `Moved`.  Raise ValueError if it is invalid."""
    if isinstance(every, Moved):
        return every
    if np.ndim(every) == 1:
        steps = [k for k in every if not isinstance(k, bool) and hasattr(k, "__index__") and k >= 1]
        if len(steps) == len(every) and all(a < b for a, b in pairwise(steps)):
            return tuple(int(k) for k in steps)
    elif isinstance(every, (int, float, np.number)) and not isinstance(every, bool) and every >= 1:
        if every == inf:
            return inf
        if every == int(every):
            return int(every)
    want = "a whole number >= 1, or inf, or increasing steps >= 1, or mn.Moved(...)"
    raise ValueError(f"IterativelyLinearized(every=...) expects {want}, got {every!r}")
