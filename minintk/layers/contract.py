"""Define the interface of a finite layer, and the layout of its weights in theta.

`bind(layer, site, parametrization, name)` binds a layer of a spec to a network and returns a `Bound`.  Called with
weights and inputs, the `Bound` returns the output y and the layer's Jacobian J.  J is a frozen object that stores only
the arrays needed for

    jvp   (dw, dx) -> dy                   the change of the output (forwards)
    vjp   u -> (dw, dx)                    the transpose of jvp (backwards)
    gram  (u, v) -> u (dy/dw)(dy/dw)' v    the contribution of the layer's weights to the tangent kernel

Inputs have shape ([E], N, *shape), and weights have shape ([E], *tensor.shape).  The optional axis E of an ensemble
broadcasts.  Cotangents u and tangents dw, dx can have an additional leading axis, (K, [E], ...).

The tensors of all layers are concatenated into one vector theta : (P,), or (E, P) for an ensemble of E networks.  Each
tensor is a view of theta.  Differences, norms, optimisers and checkpoints therefore operate on a single array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import singledispatch
from math import prod
from typing import Any, Protocol

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, array_namespace, to_library
from minintk.spec.parametrization import NO_KERNEL, Parametrization, Role, Row, Rule
from minintk.spec.shapes import Shape, Site, UnsupportedLayer
from minintk.validate import number

Weights = dict[str, Array]
Params = str | Sequence[str] | None
WEIGHT = Role("weight")

# -------------------------------------------------------------------------------------------- derivatives


@dataclass(frozen=True)
class Contraction:
    """Compute part of J S J' from cotangents u : (C, [E], N, F), v : (C, [E], M, F) and g, a number or ([E], N, M):

        full     k[n, c, m, d] = g[n, m] u[c, n] . v[d, m]            ([E], N, C, M, C)
        else     k[n, m] = g[n, m] sum_c u[c, n] . v[c, m]            ([E], N, M)

    F : the number of entries of one example.  The axes E, N and M of u and v can have length 1 if the cotangent is the
    same for all members or examples, as it is at the outputs.
    S : (P,) on the host, constant within each tensor of `layout`, or None for J J'.
    """

    full: bool
    S: Any = None
    layout: Layout | None = None
    _asked: set[str] = field(default_factory=set, repr=False)

    def scale(self, tensor: Tensor) -> float:
        """Return S for this tensor, by which `gram` multiplies the tensor's contribution.  For J J', S = 1."""
        self._asked.add(tensor.name)
        return 1.0 if self.S is None or self.layout is None else float(self.S[self.layout.slices[tensor.name]][0])

    def check_asked(self, layout: Layout) -> None:
        """Raise TypeError for a tensor with S != 1 whose layer did not call `scale`."""
        for t in layout.tensors:
            if t.name not in self._asked and self.scale(t) != 1:
                raise TypeError(f"the gram of {t.name}'s layer forgets scales: multiply its part by kernel.scale(t)")

    def __call__(self, u: Array, v: Array, g: Array | float) -> Array:
        """Return (u . v) * g."""

        def rows(a: Array) -> Array:
            a = array_namespace(a).moveaxis(a, 0, -2)
            N, C, n = a.shape[-3:]
            return a.reshape((*a.shape[:-3], N * C, n) if self.full else (*a.shape[:-3], N, C * n))

        a = rows(u)
        k = a @ (a if u is v else rows(v)).swapaxes(-1, -2)
        if not self.full:
            return k * g
        k = k.reshape((*k.shape[:-2], u.shape[-2], len(u), v.shape[-2], len(v)))
        return k * (g if isinstance(g, (int, float)) else g[..., :, None, :, None])


class LayerJacobian:
    """The derivatives of a layer at given w and x.  Subclasses define `jvp`, `vjp` and, for weights, `gram`."""

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """Return dy, or None for zero, given changes dw of the weights and dx of the inputs.  dx = None means zero."""
        raise TypeError(f"{type(self).__name__} has no jvp")

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """Write u dy/dw into the arrays dw, if given (with =, not +=), and return u dy/dx.

        The first layer with weights (`Site.first`) can return None, unless df/dx is needed (`Site.inputs`).
        """
        raise TypeError(f"{type(self).__name__} has no vjp")

    def gram(self, u: Array, other: Any, v: Array, kernel: Contraction) -> Array | float:
        """Return sum_w S (u dy/dw)(v dy'/dw) over the layer's weights w, contracted by `kernel`, or 0 without weights.

        u, v : (C, [E or 1], N or 1, *shape), one cotangent per output of the network.  S = kernel.scale(tensor of w).
        y' is the output of `other`.  Merge the axes of each example into one before calling `kernel`.
        """
        return 0.0

    def gram_and_back(
        self, u: Array, other: Any, v: Array, kernel: Contraction
    ) -> tuple[Array | float, Array | None, Array | None]:
        """Return (gram, u dy/dx, v dy'/dx'), where x', y' belong to `other`.  Compute equal cotangents only once."""
        G = self.gram(u, other, v, kernel)
        du = self.vjp(u, None)
        return G, du, du if self is other and u is v else other.vjp(v, None)


class Bound(Protocol):
    """A layer bound to a network.  tensors : the tensors of the layer and of the layers inside it."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors, or () for a layer without weights."""

    def __call__(self, w: Weights, x: Array) -> tuple[Array, LayerJacobian]:
        """Return (y, J) for weights w and a batch x.  Only BatchNorm changes w, by adding statistics."""


@singledispatch
def bind(layer: s.Layer, site: Site, parametrization: Parametrization, name: str) -> Bound:
    """Bind a layer to a finite network, with the parametrization's multipliers.  name : the prefix of tensor names."""
    kind = type(layer).__name__
    raise UnsupportedLayer(f"{kind} has no finite meaning: register minintk.layers.contract.bind for it")


# ------------------------------------------------------------------------------------------------ weights


@dataclass(frozen=True)
class Tensor:
    """A named slice of theta, with its shape, its role and its row of the parametrization table."""

    name: str
    shape: Shape
    row: Row
    role: Role = WEIGHT

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class WeightAndBias:
    """Parameters W, b, m, c of y = m x W + c b.  b : None without bias.  ends_sweep : True if u dy/dx is not needed."""

    W: Tensor
    b: Tensor | None
    m: float
    c: float
    ends_sweep: bool

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.W,) if self.b is None else (self.W, self.b)

    def squares(self, kernel: Contraction) -> tuple[float, float]:
        """Return (S_W m^2, S_b c^2), the factors of the contributions of W and b to J S J'; 0 without a bias."""
        return kernel.scale(self.W) * self.m**2, 0.0 if self.b is None else kernel.scale(self.b) * self.c**2


def weight_and_bias(
    layer: s.Dense | s.Convolution, site: Site, parametrization: Parametrization, name: str, shape: Shape
) -> WeightAndBias:
    """Return W : `shape` = (*window, fan_in / |window|, fan_out) and b : (fan_out,), with their table rows."""
    *before, fan_out = shape
    window, fan_in = prod(before[:-1]), prod(before)
    at = site.place, window, site.branches, site.end
    roles = Role("weight", *at), Role("bias", *at)
    weight = parametrization.row(roles[0], fan_in, fan_out, float(layer.w_std))
    bias = parametrization.row(roles[1], fan_in, fan_out, float(layer.b_std))
    if layer.b_init == "zeros":
        bias = replace(bias, std=0.0)
    W = Tensor(f"{name}.W", shape, weight, roles[0])
    b = None if layer.b_std == 0 else Tensor(f"{name}.b", (fan_out,), bias, roles[1])
    return WeightAndBias(W, b, float(weight.multiplier), float(bias.multiplier), site.first and not site.inputs)


class Layout:
    """Store the slice of theta that belongs to each tensor.

    >>> from minintk import Dense, Network
    >>> layout = Network(Dense(2, b_std=0.1), (3,)).layout
    >>> layout
    Layout(0.W (3, 2), 0.b (2,); P = 8)
    >>> theta = layout.pack({"0.W": np.ones((3, 2)), "0.b": np.zeros(2)})
    >>> layout.unpack(theta)["0.b"]
    array([0., 0.])
    """

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self.tensors = tensors
        self.slices: dict[str, slice] = {}
        start = 0
        for tensor in tensors:
            self.slices[tensor.name] = slice(start, start + tensor.size)
            start += tensor.size
        self.size = start

    def __repr__(self) -> str:
        return f"Layout({', '.join(f'{t.name} {t.shape}' for t in self.tensors)}; P = {self.size})"

    def unpack(self, theta: Array) -> dict[str, Array]:
        """Return named views into theta : (..., P).  Writing to a view changes theta."""
        if theta.ndim < 1 or theta.shape[-1] != self.size:
            raise ValueError(f"theta expects shape (..., {self.size}), got {tuple(theta.shape)}")
        lead = theta.shape[:-1]
        return {t.name: theta[..., self.slices[t.name]].reshape(lead + t.shape) for t in self.tensors}

    def pack(self, pieces: Mapping[str, Array]) -> Array:
        """Return theta : (P,) from named tensors, or (E, P) if each has a leading ensemble axis."""
        if missing := [t.name for t in self.tensors if t.name not in pieces]:
            raise ValueError(f"pack expects {[t.name for t in self.tensors]}, missing {missing}")
        if unknown := [name for name in pieces if name not in self.slices]:
            raise ValueError(f"pack got unknown names {unknown}; this layout has {[t.name for t in self.tensors]}")
        xp = array_namespace(*pieces.values())
        flat, lead = [], None
        for t in self.tensors:
            a = pieces[t.name]
            here = tuple(a.shape[: a.ndim - len(t.shape)])
            if tuple(a.shape[a.ndim - len(t.shape) :]) != t.shape or (lead is not None and here != lead):
                want = t.shape if not lead else (*lead, *t.shape)
                raise ValueError(f"pack expects {t.name} of shape {want}, got {tuple(a.shape)}")
            lead = here
            flat.append(a.reshape((*here, t.size)))
        return xp.concat(flat, axis=-1)

    def init(self, rng: np.random.Generator, ensemble: int | None, dtype: Any) -> np.ndarray[Any, Any]:
        """Draw theta on the host from the rows of the table, member by member and tensor by tensor.

        Values are drawn in float64 and cast to `dtype`.  A single network is drawn like member 0 of an ensemble.
        """
        theta = np.empty((1 if ensemble is None else ensemble, self.size), dtype)
        for member in theta:
            for t in self.tensors:
                piece, std = member[self.slices[t.name]], t.row.std
                if std == 0:
                    piece[:] = 0
                elif t.row.draw == "normal":
                    piece[:] = std * rng.standard_normal(t.size)
                else:
                    piece[:] = rng.uniform(-(3**0.5) * std, 3**0.5 * std, t.size)
        return theta[0] if ensemble is None else theta

    def frozen(self, params: Params) -> dict[str, float]:
        """Return {name: 0.0} for tensors that `params` does not select by name, by pattern ("*.b") or by "last"."""
        if params is None:
            return {}
        last = next(reversed(self.slices), "").split(".")[0] + ".*"
        patterns = [last if p == "last" else p for p in ([params] if isinstance(params, str) else params)]
        found = [{name for name in self.slices if fnmatchcase(name, p)} for p in patterns]
        if not found or not all(found):
            raise ValueError(
                f"params expects some of {list(self.slices)}, '*.b' or 'last', got {params!r}: none matches"
            )
        return dict.fromkeys(self.slices.keys() - set().union(*found), 0.0)

    def learning_rate_scales(
        self, override: Mapping[str, float] | None = None, rule: Rule = "sgd", name: str = "lr_scales",
        like: Array | None = None, params: Params = None,
    ) -> Any:  # fmt: skip
        """Return the learning-rate scale of each parameter, (P,), or None if all are 1.

        override : {tensor name: scale}; 0 freezes a tensor.  rule : `Optimizer.rule`.  name : shown in error messages.
        like : an array with the library and dtype of the result (by default NumPy, float64).  params : see `frozen`.
        """
        if override is not None and not isinstance(override, Mapping):
            why = f"; {NO_KERNEL}" if name == "scales" else ""
            raise TypeError(f"{name} expects {{tensor name: scale}}, got {override!r}{why}")
        override = dict(override or {}) | self.frozen(params)
        if unknown := sorted(set(override) - set(self.slices)):
            raise ValueError(f"{name} names unknown tensors {unknown}; this layout has {list(self.slices)}")
        own = {t.name: float(t.row.rate(rule)) for t in self.tensors if t.name not in override}
        scales = own | {at: number(f"{name}[{at!r}]", scale, zero=True) for at, scale in override.items()}
        if all(scale == 1 for scale in scales.values()):
            return None
        S = np.concatenate([np.full(t.size, scales[t.name]) for t in self.tensors])
        return S if like is None else to_library(S.astype(str(like.dtype)), array_namespace(like))
