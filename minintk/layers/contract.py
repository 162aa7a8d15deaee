"""The finite meaning of a layer: its output, and its derivatives by hand.

`bind(layer, site, parametrization, name)` ties a spec's layer to its place in a network and returns a `Bound`.
Calling that gives (y, J): the output, and a small frozen object that holds exactly the arrays the derivatives
need.  J is the layer's Jacobian as three linear maps,

    jvp   (dw, dx) -> dy                   forwards: the change of the output
    vjp   u -> (dw, dx)                    backwards: the same map transposed
    gram  (u, v) -> u (dy/dw)(dy/dw)' v    what the layer's weights add to the tangent kernel

All arrays may carry leading axes, which broadcast: x : ([E], N, *shape), weights ([E], *shape), cotangents u
and tangents dw, dx one more in front of all, (K, [E], ...).
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any, Protocol

from minintk import spec as s
from minintk.arrays import Array
from minintk.layers.layout import Tensor
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, Site, UnsupportedLayer

Weights = dict[str, Array]
Gram = tuple[Array | float, Array | None, Array | None]


class LayerJacobian(Protocol):
    """The derivatives of one layer at one point."""

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """dy for a change dw of the weights and dx of the input; None stands for zero."""

    def vjp(self, u: Array, dw: Weights | None) -> Array | None:
        """The transposed map: writes u dy/dw into the arrays dw (where given), returns u dy/dx.

        Returns None where no weights come before the layer, so that nobody needs u dy/dx.
        """

    def gram(self, u: Array, other: Any, v: Array, kernel: Contraction) -> Gram:
        """(G, u dy/dx, v dy'/dx) with G = sum over the layer's weights w of (u dy/dw)(v dy'/dw).

        y' is the output that `other` belongs to: the same layer at other inputs.
        """


class Contraction(Protocol):
    """How cotangents u : (C, [E], N, n) and v : (C, [E], M, n) are contracted over n."""

    def __call__(self, u: Array, v: Array, g: Array | float) -> Array:
        """(u . v) * g, where g : ([E], N, M) is the kernel of the inputs."""

    @property
    def full(self) -> bool:
        """Whether the result is ([E], N, C, M, C), all pairs of outputs, or their trace ([E], N, M)."""


class Bound(Protocol):
    """A layer in its place."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The pieces of theta it owns, and those of the layers inside it."""

    @property
    def out_shapes(self) -> tuple[Shape, ...]:
        """Shapes of one example after the layer and after each layer inside it: what linearising keeps."""

    def __call__(self, w: Weights, x: Array) -> tuple[Array, LayerJacobian]:
        """(y, J) for the weights w and a batch x."""


@singledispatch
def bind(layer: s.Layer, site: Site, parametrization: Parametrization, name: str) -> Bound:
    """The finite network's version of a layer; `name` is the prefix of its tensors' names."""
    raise UnsupportedLayer(
        f"{type(layer).__name__} has no finite meaning: register minintk.layers.contract.bind for it"
    )


def gram_and_back(J: LayerJacobian, u: Array, other: LayerJacobian, v: Array, G: Array | float = 0.0) -> Gram:
    """(G, u dy/dx, v dy'/dx): the end of every layer's `gram`; one sweep serves a batch against itself."""
    du = J.vjp(u, None)
    return G, du, du if J is other and u is v else other.vjp(v, None)
