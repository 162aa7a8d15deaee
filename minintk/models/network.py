"""Build the finite network of a spec as a `Model`.  `Network.speed` can replace the layers by faster ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from math import prod
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast, overload

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, array_namespace, available_memory, check_finite_by, own, to_host
from minintk.doors import through
from minintk.layers.combine import BoundChain
from minintk.layers.contract import Bound, Layout, Params, Weights, bind
from minintk.layers.dropout import KEYS
from minintk.models import taylor
from minintk.models.input_jacobian import InputJacobian
from minintk.models.jacobian import Jacobian, NetworkJacobian
from minintk.models.model import Model
from minintk.models.power_series import Series
from minintk.spec.parametrization import NTK, Parametrization
from minintk.spec.shapes import Shape, Site, couples, kept_shapes, out_shape
from minintk.spec.variance import warn_if_nothing_arrives
from minintk.spec.windows import check_channels_last
from minintk.thresholds import THRESHOLDS
from minintk.validate import check_generator, precision, whole


class Ways(NamedTuple):
    """The bound layers of a network in two versions: `sweeps` for outputs, jvp and vjp, and `kernels` for kernels."""

    sweeps: Bound
    kernels: Bound


def as_written(layers: BoundChain, spec: s.Sequential, input_shape: Shape, coupled: bool) -> Ways:
    """Return the plain layers as both versions of `Ways`."""
    return Ways(layers, layers)


class Network(Model):
    """The finite network of a spec.

    spec : the layers.  input_shape : shape of one example, ``x.shape[1:]``.  parametrization : a `Parametrization`
    (see `minintk.spec.parametrization`), by default NTK().  Raises ValueError if the layers do not fit each other.

    >>> from minintk import Dense, ReLU, Sequential
    >>> net = Network(Sequential(Dense(512, b_std=0.1), ReLU(), Dense(1)), input_shape=(64,))
    >>> net.size
    33792
    >>> theta = net.init(np.random.default_rng(0))
    >>> f, J = net.linearize(theta, np.ones((3, 64)))
    >>> f.shape, J.vjp(f).shape, J.gram().shape
    ((3, 1), (33792,), (3, 1, 3, 1))
    """

    speed: ClassVar[Callable[[BoundChain, s.Sequential, Shape, bool], Ways] | None] = None
    """The function that returns a network's `Ways`.  If it is None, a default is used (see `minintk.doors`)."""

    def __init__(
        self, spec: s.Layer, input_shape: Sequence[int], parametrization: Parametrization | None = None
    ) -> None:
        self.spec = s.as_sequential(spec)
        self.parametrization = NTK() if parametrization is None else parametrization
        if not isinstance(self.parametrization, Parametrization):
            raise TypeError(f"parametrization expects an object such as mn.NTK(), got {parametrization!r}")
        several = isinstance(input_shape, (tuple, list))
        if not several or not all(isinstance(n, (int, np.integer)) and n >= 1 for n in input_shape):
            raise ValueError(f"input_shape expects the shape of one example, x.shape[1:], got {input_shape!r}")
        self.input_shape = tuple(int(n) for n in input_shape)
        check_channels_last(self.spec, self.input_shape)
        shape = out_shape(self.spec, self.input_shape)
        if len(shape) != 1:
            end = "end with mn.Flatten() and mn.Dense(...)"
            raise ValueError(f"the network's outputs must be a vector, got shape {shape}: {end}")
        self.outputs = shape[0]
        shapes = self.input_shape, *kept_shapes(self.spec, self.input_shape)
        sizes = [prod(shape) for shape in shapes]
        self._footprint = sum(sizes), max(sizes)
        self._positions = max(prod(shape[:-1]) for shape in shapes)  # largest number of positions that share a weight
        self._couples = couples(self.spec)
        self.statistics: Weights = {}
        self.keys: np.ndarray[Any, Any] | None = None  # keys of the Dropout masks, ([E], 2): a seed and the steps taken
        self._bind()
        warn_if_nothing_arrives(self.spec, self.parametrization)

    def _bind(self) -> None:
        self.layers = cast(BoundChain, bind(self.spec, Site(self.input_shape), self.parametrization, ""))
        self.layout = Layout(self.layers.tensors)
        self.sweeps, self.kernels = self._ways(self.coupled)

    def _ways(self, coupled: bool) -> Ways:
        speed = Network.speed or through("networks", as_written)
        ways: Ways = speed(self.layers, self.spec, self.input_shape, coupled)
        return ways

    def __getstate__(self) -> dict[str, Any]:
        bound = "layers", "layout", "sweeps", "kernels"  # these contain functions, which cannot be pickled
        return {name: value for name, value in vars(self).items() if name not in bound}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._bind()

    def __copy__(self) -> Self:
        vars(other := object.__new__(type(self))).update(vars(self))  # shares the bound layers
        return other

    def __repr__(self) -> str:
        layers = ", ".join(map(short, self.spec.layers))
        return f"Network({layers}; input_shape={self.input_shape}, {self.parametrization!r}, P = {self.size})"

    @property
    def footprint(self) -> tuple[int, int]:
        return self._footprint

    def summary(self) -> str:
        """Return a table of layers, output shapes and parameter counts.  If `analytic` is installed, add the phase.

        >>> from minintk import Dense, ReLU, Sequential
        >>> net = Network(Sequential(Dense(512, w_std=2**0.5), ReLU(), Dense(10, w_std=2**0.5)), (64,))
        >>> print(net.summary().split("phase")[0].rstrip())  # with `analytic`, its phase is below
           layer        shape  parameters
        0  Dense(512)  (512,)      32,768
        1  ReLU()      (512,)           0
        2  Dense(10)    (10,)       5,120
           NTK()                   37,888
        """
        rows, shape = [("", "layer", "shape", "parameters")], self.input_shape
        for i, (layer, bound) in enumerate(zip(self.spec.layers, self.layers.layers, strict=True)):
            shape = out_shape(layer, shape)
            rows.append((str(i), short(layer), str(shape), f"{sum(t.size for t in bound.tensors):,}"))
        rows.append(("", repr(self.parametrization), "", f"{self.size:,}"))
        a, b, c, d = (max(map(len, column)) for column in zip(*rows, strict=True))
        lines = [f"{i:<{a}}  {name:<{b}}  {after:>{c}}  {count:>{d}}" for i, name, after, count in rows]
        return "\n".join([*lines, *through("phase", lambda *_: ())(self.spec, self.parametrization)])

    def init(
        self, rng: np.random.Generator, *, ensemble: int | None = None, dtype: Any = np.float64
    ) -> np.ndarray[Any, Any]:
        """Draw theta : (P,), or (E, P) for an ensemble, on the host.  ``cupy.asarray(theta)`` copies it to the GPU.

        >>> from minintk import Dense
        >>> net = Network(Dense(2), (3,))
        >>> net.init(np.random.default_rng(0), ensemble=20).shape
        (20, 6)
        """
        check_generator("init", rng)
        E, dtype = None if ensemble is None else whole("ensemble", ensemble), precision(dtype)
        need = (E or 1) * self.size * np.dtype(dtype).itemsize
        if need > 2**28 and need > (free := available_memory(np)):
            raise MemoryError(
                f"{E or 1} theta of {self.size} parameters need {need / 1e9:.3g} GB, but {free / 1e9:.3g} GB are free: "
                "draw fewer networks at a time, or pass dtype='float32'"
            )
        return self.layout.init(rng, E, dtype)

    @property
    def coupled(self) -> bool:
        return self.keys is not None or (self._couples and not self.statistics)

    def with_dropout(self, rng: np.random.Generator, *, ensemble: int | None = None) -> Network:
        """Return this network with masks in every Dropout layer, for training.

        The masks depend on a key drawn from `rng` by this call, the step number, the layer, and the position of an
        example in its batch.  `train` and `fit` use new masks at every step.  A resumed run uses the same masks as an
        uninterrupted run.  To predict without masks, use the original network or `calibrate`.

        ensemble : the number E of members, each with its own masks.  By default, all members share the masks.

        >>> import minintk as mn
        >>> net = Network(mn.Sequential(mn.Dense(8), mn.ReLU(), mn.Dropout(0.5), mn.Dense(1)), (3,))
        >>> rng = np.random.default_rng(0)
        >>> how = {"loss": mn.mse, "optimizer": mn.SGD(0.1), "steps": 3}
        >>> *_, last = mn.train(net.with_dropout(rng), net.init(rng), np.eye(3), np.ones((3, 1)), **how)
        >>> bool(np.any(last.f != net(last.theta, np.eye(3))))
        True
        """
        check_generator("with_dropout", rng)
        seeds = rng.integers(2**62, size=() if ensemble is None else (whole("ensemble", ensemble),))
        return self._with(self.statistics, np.stack([seeds, 0 * seeds], axis=-1))

    def advance(self, theta: Array) -> Network:
        return self if self.keys is None else self._masked(self.keys + np.array([0, 1]))

    def anchors(self) -> dict[str, Array]:
        return {} if self.keys is None else {KEYS: self.keys}

    def anchored(self, anchors: Mapping[str, Array]) -> Network:
        return self._masked(to_host(anchors[KEYS])) if KEYS in anchors else self

    def _masked(self, keys: np.ndarray[Any, Any]) -> Network:
        other = copy(self)
        other.keys = keys
        return other

    def _weights(self, theta: Array) -> Weights:
        """Return all arrays that the layers need, i.e. weights, frozen statistics and the keys of the masks."""
        w = self.layout.unpack(theta) | self.statistics
        return w if self.keys is None else w | {KEYS: self.keys}

    def calibrate(self, theta: Array, x: Array) -> Network:
        """Return this network without masks and with every BatchNorm's statistics frozen at those of the batch x.

        Each output then depends only on its own example, as evaluation and kernels require.  For an ensemble theta :
        (E, P), each member has its own statistics.

        >>> import minintk as mn
        >>> net = Network(mn.Sequential(mn.Dense(4), mn.BatchNorm(), mn.ReLU(), mn.Dense(1)), (3,))
        >>> theta, x = net.init(np.random.default_rng(0)), np.eye(3)
        >>> frozen = net.calibrate(theta, x)
        >>> bool(np.allclose(frozen(theta, x), net(theta, x))), mn.ntk(frozen, theta, x).shape
        (True, (3, 3))
        """
        self.check(theta, x)
        if x.shape[0] == 0:
            raise ValueError("calibrate expects at least one example, got none")
        w = self.layout.unpack(theta)
        self.layers(w, x)  # BatchNorm stores its statistics in w
        return self._with({name: a for name, a in w.items() if name not in self.layout.slices})

    def layer_outputs(self, theta: Array, x: Array) -> list[Array]:
        """Return the output of each top-level layer, ([E], N, *shape).  The last one is the network's output."""
        self.check(theta, x)
        xp, w, outputs = array_namespace(theta, x), self._weights(theta), []
        lead, shape = (*theta.shape[:-1], x.shape[0]), self.input_shape
        for layer, bound in zip(self.spec.layers, self.layers.layers, strict=True):
            x, _ = bound(w, x)
            shape = out_shape(layer, shape)
            outputs.append(xp.broadcast_to(x, (*lead, *shape)))
        return outputs

    def _with(self, statistics: Weights, keys: np.ndarray[Any, Any] | None = None) -> Network:
        other = copy(self)
        other.statistics, other.keys = statistics, keys
        other.sweeps, other.kernels = self._ways(other.coupled)
        return other

    def members(self, which: slice) -> Network:
        keys = self.keys if self.keys is None or self.keys.ndim == 1 else self.keys[which]
        if keys is self.keys and all(a.ndim == 1 for a in self.statistics.values()):
            return self
        return self._with({name: a[which] if a.ndim == 2 else a for name, a in self.statistics.items()}, keys)

    def check(self, theta: Array, x: Array) -> None:
        super().check(theta, x)
        fixed: list[tuple[str, Array, str]] = []
        if self.keys is not None:
            fixed.append(("masks", self.keys, "with_dropout(rng, ensemble=E)"))
        for a in self.statistics.values():
            array_namespace(a, theta)
            if a.dtype != theta.dtype:
                raise TypeError(f"theta expects {a.dtype}, as the network was calibrated, got {theta.dtype}")
            fixed.append(("statistics", a, "calibrate(theta, x)"))
        for what, a, remedy in fixed:
            if a.ndim == 2 and theta.shape[:-1] != a.shape[:1]:
                want = f"({a.shape[0]}, {self.size}), the ensemble that the {what} are for"
                raise ValueError(f"theta expects shape {want}, got {tuple(theta.shape)}: {remedy}")

    def forward(self, theta: Array, x: Array) -> tuple[Array, NetworkJacobian]:
        return self._through(self._way(self.sweeps, x), theta, x)

    @overload
    def linearize(
        self, theta: Array, x: Array, wrt: Literal["theta"] = "theta", *, params: Params = None
    ) -> tuple[Array, Jacobian]: ...
    @overload
    def linearize(self, theta: Array, x: Array, wrt: Literal["x"]) -> tuple[Array, InputJacobian]: ...

    def linearize(self, theta: Array, x: Array, wrt: str = "theta", *, params: Params = None) -> tuple[Array, Any]:
        """Return (f, J), the outputs ([E], N, C) and their Jacobian with respect to theta, or to x if wrt="x"."""
        if wrt == "theta":
            return super().linearize(theta, x, params=params)
        if wrt != "x" or params is not None:
            raise ValueError(f"wrt expects 'theta' or, without params, 'x', got {wrt!r}")
        self.check(theta, x)
        theta, x = own(theta), own(x)
        layers = bind(self.spec, Site(self.input_shape, inputs=True), self.parametrization, "")
        f, root = layers(self._weights(theta), x)
        check_finite_by(f, "theta", theta)
        J = InputJacobian(root, self.layout, (x.shape[0], self.outputs), tuple(x.shape), theta, self.coupled)
        return own(array_namespace(f).broadcast_to(f, (*theta.shape[:-1], *J.outputs))), J

    def jacobian(self, theta: Array, x: Array) -> NetworkJacobian:
        return self._through(self._way(self.kernels, x), theta, x)[1]

    def _way(self, fast: Bound, x: Array) -> Bound:
        """Return `fast`, or the plain layers if N P R < THRESHOLDS.plain, where up to R positions share a weight."""
        return fast if x.shape[0] * self._positions * self.size >= THRESHOLDS.plain else self.layers

    def _through(self, layers: Bound, theta: Array, x: Array) -> tuple[Array, NetworkJacobian]:
        """Return (f, J) computed by `layers`."""
        f, root = layers(self._weights(theta), x)
        ensemble = theta.shape[0] if theta.ndim == 2 else None
        if ensemble is not None and f.ndim == 2:  # without weights, all members have the same f
            f = array_namespace(f).broadcast_to(f, (ensemble, *f.shape))

        at = self, layers, x
        return f, NetworkJacobian(root, self.layout, (x.shape[0], self.outputs), ensemble, theta, self.coupled, at)

    def expand(self, theta0: Array, d: Array, x: Array, order: int) -> tuple[Series, NetworkJacobian]:
        w, ensemble = self._weights(theta0), d.shape[0] if d.ndim == 2 else None
        y, root = taylor.along(self.layers, w, self.layout.unpack(d), x, order)
        if ensemble is not None:
            y = [c if c is None or c.ndim == 3 else array_namespace(c).broadcast_to(c, (ensemble, *c.shape)) for c in y]
        return y, NetworkJacobian(root, self.layout, (x.shape[0], self.outputs), ensemble, d)


def short(layer: s.Layer) -> str:
    """Return the layer's name with its first argument, if that is a whole number, or with its inner layers' names.

    >>> short(s.Residual(s.Sequential(s.ReLU(), s.Dense(64, w_std=2.0))))
    'Residual(ReLU, Dense)'
    """
    if layer.inside:
        parts = (part.inside if isinstance(part, s.Sequential) else (part,) for part in layer.inside)
        names = ", ".join(type(child).__name__ for part in parts for child in part if child != s.Identity())
    else:
        first = [getattr(layer, name) for name in list(getattr(layer, "__dataclass_fields__", ()))[:1]]
        names = "".join(str(number) for number in first if isinstance(number, int))
    return f"{type(layer).__name__}({names})"
