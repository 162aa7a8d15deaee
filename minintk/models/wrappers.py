"""Wrap a model in another model, with the same interface but a different function of theta.

    Linearized    f_lin(theta) = f(theta_0) + J(theta_0) (theta - theta_0)          Lee et al. 2019, eq. (5)
    Taylor        sum_{j <= k} D^j f(theta_0)[d, ..., d] / j!,   d = theta - theta_0
    Centred       alpha (f(theta) - f(theta_0))                                      Geiger et al. 2020

Wrappers can be nested, but a `Taylor` cannot expand another.  `train`, `ntk` and most diagnostics accept all wrappers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from functools import reduce
from typing import Self

from minintk.arrays import Array, array_namespace, check_finite
from minintk.layers.contract import Contraction, Params
from minintk.models.jacobian import Jacobian
from minintk.models.model import Chosen, Model
from minintk.models.power_series import Series, add, scaled
from minintk.validate import number, whole


class Anchored(Model):
    """A model built on another model and a point theta_0 : (E, P), or (P,) for one point shared by all members."""

    def __init__(self, model: Model, theta0: Array) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"{type(self).__name__} expects a model such as mn.Network(...), got {model!r}")
        model.check_theta(theta0, "theta0")
        check_finite("theta0", theta0)
        self.model = model
        self.input_shape, self.layout, self.outputs = model.input_shape, model.layout, model.outputs
        self.theta0 = array_namespace(theta0).asarray(theta0, copy=True)  # training can overwrite the caller's array

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
        """Return theta_0, with an ensemble axis if theta has one."""
        same = self.theta0.shape == theta.shape
        return self.theta0 if same else array_namespace(theta).broadcast_to(self.theta0, theta.shape)

    def _moved(self, model: Model, theta0: Array) -> Self:
        """Return this wrapper with another model and theta_0.  Nothing writes to theta_0, so theta_0 can be a view."""
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
        params = "" if (some := vars(self).get("params")) is None else f", params={some!r}"
        return f"{type(self).__name__}({self.model!r}, theta0{params})"


class Linearized(Anchored):
    """f_lin(theta) = f(theta_0) + J(theta_0) (theta - theta_0)   (Lee et al. 2019, eq. 5).

    Its Jacobian is J(theta_0) at every theta.  For a squared loss, its gradient flow has a closed form.
    params : as for `ntk`.  f_lin does not depend on the other parameters.  Dropout masks do not change during training.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (3,))
    >>> theta0 = net.init(np.random.default_rng(0))
    >>> x = np.eye(3)
    >>> bool(np.all(Linearized(net, theta0)(theta0, x) == net(theta0, x)))
    True
    """

    def __init__(self, model: Model, theta0: Array, params: Params = None) -> None:
        super().__init__(model, theta0)
        self.layout.frozen(params)  # raises an error for unknown names
        self.params = params

    def _chosen(self, J: Jacobian) -> Jacobian:
        return J if self.params is None else Chosen(J, self.layout, self.params)

    def forward(self, theta: Array, x: Array) -> tuple[Array, Jacobian]:
        theta0 = self._anchor(theta)
        f0, J = self.model.forward(theta0, x)
        J = self._chosen(J)
        return f0 + J.push(theta - theta0), J

    def jacobian(self, theta: Array, x: Array) -> Jacobian:
        return self._chosen(self.model.jacobian(self._anchor(theta), x))

    def expand(self, theta0: Array, d: Array, x: Array, order: int) -> tuple[Series, Jacobian]:
        f, J = self.forward(theta0, x)
        return [f, J.push(d), *(None for _ in range(order - 1))], J


class Centred(Anchored):
    """alpha (f(theta) - f(theta_0)), which is 0 at theta_0.  A larger alpha makes training lazier (Geiger et al. 2020).

    Its tangent kernel is alpha^2 times that of f.  theta0 : ([E], P).  Raises ValueError unless 0 < alpha < inf.

    >>> import numpy as np, minintk as mn
    >>> net, x = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (3,)), np.eye(3)
    >>> theta0 = net.init(np.random.default_rng(0))
    >>> model = Centred(net, theta0, alpha=10.0)
    >>> model(theta0, x).tolist(), bool(np.allclose(mn.ntk(model, theta0, x), 100 * mn.ntk(net, theta0, x)))
    ([[0.0], [0.0], [0.0]], True)
    """

    def __init__(self, model: Model, theta0: Array, alpha: float) -> None:
        super().__init__(model, theta0)
        self.alpha = number("Centred(alpha=...)", alpha)
        self._start = model  # f(theta_0) must not change if the model's anchor moves
        self._kept: tuple[Array, Array] | None = None  # x and f(theta_0) at x

    def fixed(self, x: Array) -> Self:
        other = copy(self)
        other._kept = x, self._start.forward(self.theta0, x)[0]
        return other

    def _f0(self, theta: Array, x: Array) -> Array:
        """Return f(theta_0) at x: the stored value if x is the array passed to `fixed`."""
        if self._kept is not None and self._kept[0] is x:
            return self._kept[1]
        return self._start.forward(self._anchor(theta), x)[0]

    def advance(self, theta: Array) -> Centred:
        moved = self.model.advance(theta)
        return self if moved is self.model else self._moved(moved, self.theta0)

    def _moved(self, model: Model, theta0: Array) -> Self:
        other = super()._moved(model, theta0)
        if not isinstance(model, Anchored):  # only dropout masks can have changed
            other._start, other._kept = model, None
        return other

    def __repr__(self) -> str:
        return f"Centred({self.model!r}, theta0, alpha={self.alpha:g})"

    def members(self, which: slice) -> Self:
        part = super().members(which)
        part._start, part._kept = self._start.members(which), None
        return part

    def forward(self, theta: Array, x: Array) -> tuple[Array, Jacobian]:
        f, J = self.model.forward(theta, x)
        return self.alpha * (f - self._f0(theta, x)), Scaled(J, self.alpha)

    def jacobian(self, theta: Array, x: Array) -> Jacobian:
        return Scaled(self.model.jacobian(theta, x), self.alpha)

    def expand(self, theta0: Array, d: Array, x: Array, order: int) -> tuple[Series, Jacobian]:
        (y0, *others), J = self.model.expand(theta0, d, x, order)
        y0 = self.alpha * (y0 - self._f0(theta0, x))
        return [y0, *(scaled(self.alpha, y) for y in others)], Scaled(J, self.alpha)


class Scaled(Jacobian):
    """The Jacobian alpha J."""

    def __init__(self, J: Jacobian, alpha: float) -> None:
        self.J, self.alpha = J, alpha
        self.size, self.outputs, self.ensemble, self.like = J.size, J.outputs, J.ensemble, J.like

    def push(self, v: Array) -> Array:
        return self.alpha * self.J.push(v)

    def pull(self, u: Array, out: Array) -> None:
        self.J.pull(self.alpha * u, out)

    def parts(self) -> Iterator[tuple[int, Jacobian]]:
        return ((i, Scaled(J, self.alpha)) for i, J in self.J.parts())

    def contract(self, other: Jacobian, kernel: Contraction) -> Array:
        """Return alpha J S J_other'.  If `other` is `Scaled`, J_other is its J times its alpha."""
        alpha, K = (self.alpha * other.alpha, other.J) if isinstance(other, Scaled) else (self.alpha, other)
        k = self.J.gram_by(K, kernel)
        k *= alpha
        return k


class Taylor(Anchored):
    """The Taylor expansion of the outputs around theta_0 to the given order k:

        f_k(theta) = sum_{j = 0 ... k} 1/j! D^j f(theta_0)[d, ..., d],    d = theta - theta_0

    Order 1 is `Linearized`.  The power series of t -> f(theta_0 + t d) is computed layer by layer.  A training step
    takes about 5k/3 times as long as the network's.  Layers with kinks (ReLU, MaxPool) stay on the piece around
    theta_0.  Raises ValueError unless `order` is a whole number >= 1, and UnsupportedLayer if a layer has no expansion.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (3,))
    >>> theta0, x = net.init(np.random.default_rng(0)), np.eye(3)
    >>> [f"{np.abs(Taylor(net, theta0, k)(1.1 * theta0, x) - net(1.1 * theta0, x)).max():.0e}" for k in (1, 2, 3)]
    ['1e-03', '8e-05', '4e-06']
    """

    def __init__(self, model: Model, theta0: Array, order: int) -> None:
        super().__init__(model, theta0)
        whole("Taylor(order=...)", order)
        self.order = int(order)

    @property
    def footprint(self) -> tuple[int, int]:
        layers, widest = self.model.footprint
        return (2 * self.order + 1) * layers, (self.order + 1) * widest

    def __repr__(self) -> str:
        return f"Taylor({self.model!r}, theta0, order={self.order})"

    def forward(self, theta: Array, x: Array) -> tuple[Array, Jacobian]:
        theta0 = self._anchor(theta)
        y, J = self.model.expand(theta0, theta - theta0, x, self.order)
        return reduce(add, y), J
