"""Define `Model`, the interface through which training, kernels and diagnostics use f = model(theta, x)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, check_examples, check_finite_by, check_floating, own, to_library
from minintk.layers.contract import Contraction, Layout, Params
from minintk.models.jacobian import Jacobian
from minintk.models.power_series import Series
from minintk.spec.shapes import Shape, UnsupportedLayer


class Model(ABC):
    """f = model(theta, x) with theta : ([E], P), x : (N, *input_shape), f : ([E], N, C).

    To write your own model, define the attributes below, `forward` and `footprint`.  All other methods have defaults.

    input_shape : the shape of one example.  layout : the names of the tensors and their slices of theta.  outputs : C.
    """

    input_shape: Shape
    layout: Layout
    outputs: int

    @abstractmethod
    def forward(self, theta: Array, x: Array) -> tuple[Array, Jacobian]:
        """Return (f, J) as `linearize` does, for theta and x that have been checked."""

    @property
    @abstractmethod
    def footprint(self) -> tuple[int, int]:
        """Return how many values `linearize` stores per example, as (in all layers, in the largest layer)."""

    @property
    def size(self) -> int:
        """Return P, the number of parameters."""
        return self.layout.size

    def __call__(self, theta: Array, x: Array) -> Array:
        """Return f : ([E], N, C).  Raise ValueError or TypeError if theta and x do not fit or are not finite."""
        self.check(theta, x)
        f = self.forward(theta, x)[0]
        check_finite_by(f, "theta", theta)
        return own(f)  # f could be a view of x

    def linearize(self, theta: Array, x: Array, *, params: Params = None) -> tuple[Array, Jacobian]:
        """Return (f, J): the outputs ([E], N, C) and their Jacobian, a `minintk.models.jacobian.Jacobian`.

        J stores copies of theta and x.  params : as for `ntk`.  The columns of J for all other parameters are 0.
        """
        self.check(theta, x)
        f, J = self.forward(own(theta), own(x))
        check_finite_by(f, "theta", theta)
        return own(f), J if params is None else Chosen(J, self.layout, params)  # J stores f if an activation comes last

    def jacobian(self, theta: Array, x: Array) -> Jacobian:
        """Return only J, for theta and x that have been checked."""
        return self.forward(theta, x)[1]

    def expand(self, theta0: Array, d: Array, x: Array, order: int) -> tuple[Series, Jacobian]:
        """Return (y, J) with f(theta_0 + t d) = sum_j y_j t^j + O(t^(order + 1)) and J = d(sum_j y_j)/dd."""
        raise UnsupportedLayer(f"{self!r} has no Taylor expansion: take mn.Taylor of the network inside")

    def advance(self, theta: Array) -> Model:
        """Return the model to use after a training step to theta, by default this model."""
        return self

    def anchors(self) -> dict[str, Array]:
        """Return {name: array} of the arrays that `advance` changes, for a checkpoint.  The default is {}."""
        return {}

    def anchored(self, anchors: Mapping[str, Array]) -> Model:
        """Return the model with these arrays from a checkpoint.  `self` is the model at the start of the run."""
        return self

    def members(self, which: slice) -> Model:
        """Return this model restricted to a slice of the ensemble's members."""
        return self

    def fixed(self, x: Array) -> Model:
        """Return this model, ready for repeated calls with x.  The result can store values that depend only on x."""
        return self

    @property
    def coupled(self) -> bool:
        """True if an example's output depends on other examples or its position in the batch; then no kernel exists."""
        return False

    def check_theta(self, theta: Array, name: str = "theta") -> None:
        """Raise TypeError or ValueError unless theta : ([E], P)."""
        check_floating(name, theta)
        if theta.ndim not in (1, 2) or theta.shape[-1] != self.size:
            looks = tuple(theta.shape[1:]) == self.input_shape
            hint = "it looks like x, and theta comes before x" if looks else "is it another network's? draw it by init"
            want = f"({self.size},) or (E, {self.size})"
            raise ValueError(f"{name} expects shape {want}, got {tuple(theta.shape)}: {hint}")

    def check(self, theta: Array, x: Array) -> None:
        """Raise TypeError or ValueError unless theta and x fit this model and each other."""
        self.check_theta(theta)
        check_examples("x", x, self.input_shape)
        array_namespace(theta, x)
        if theta.dtype != x.dtype:
            remedy = "x.astype(theta.dtype), or init(..., dtype=x.dtype)"
            raise TypeError(f"theta and x must be of one dtype, got {theta.dtype} and {x.dtype}: {remedy}")


class Chosen(Jacobian):
    """The Jacobian J diag(s), with s = 1 for the chosen parameters and 0 for the others.  The size remains P."""

    def __init__(self, J: Jacobian, layout: Layout, params: Params) -> None:
        self.J, self.layout, self.s = J, layout, np.ones(J.size)
        self.size, self.outputs, self.ensemble, self.like = J.size, J.outputs, J.ensemble, J.like
        for name in layout.frozen(params):
            self.s[layout.slices[name]] = 0

    def push(self, v: Array) -> Array:
        return self.J.push(v * to_library(self.s.astype(str(v.dtype)), array_namespace(v)))

    def pull(self, u: Array, out: Array) -> None:
        self.J.pull(u, out)
        out *= to_library(self.s.astype(str(u.dtype)), array_namespace(u))

    def contract(self, other: Jacobian, kernel: Contraction) -> Array:
        """Return J diag(s) S diag(t) J_other' if `other` is J_other diag(t).  t = 1 unless `other` is `Chosen`."""
        S = self.s if kernel.S is None else self.s * kernel.S
        S, other = (S * other.s, other.J) if isinstance(other, Chosen) else (S, other)
        return self.J.gram_by(other, Contraction(kernel.full, S, self.layout))


def check_model(model: Any, kind: type[Model] = Model) -> None:
    """Raise TypeError unless `model` is a `Model` or, if kind=Network, an unwrapped network."""
    if not isinstance(model, kind):
        inside = ": give the network inside it" if isinstance(model, Model) else ""
        want = "a network," if kind is not Model else "a model such as"
        raise TypeError(f"expected {want} mn.Network(spec, x.shape[1:]), got {model!r}{inside}")
