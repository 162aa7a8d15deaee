"""Compute Dropout:  y = m x,   m = 1 / (1 - rate) or 0, drawn for each entry of x (m = 1 if the network has no masks)

jvp     dy = m dx
vjp     dx = m u
gram    0: there are no weights
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, array_namespace, to_library
from minintk.layers.contract import LayerJacobian, Tensor, Weights, bind
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, Site

KEYS = "dropout"
"""The name under which a network passes the random keys of its masks, integers ([E], 2), to its layers."""


@dataclass(frozen=True)
class DropoutJacobian(LayerJacobian):
    """The Jacobian of Dropout.  It stores the mask m : ([E], N, *shape), or 1 without masks."""

    m: Array | float

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """Compute dy = m dx."""
        return None if dx is None else self.m * dx

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """Compute dx = m u."""
        return self.m * u


@dataclass(frozen=True)
class BoundDropout:
    """A Dropout layer bound to a network.  Its masks depend on `name`, so they differ from those of other layers."""

    rate: float
    shape: Shape
    name: str
    tensors: tuple[Tensor, ...] = ()

    def __call__(self, w: Weights, x: Array) -> tuple[Array, DropoutJacobian]:
        """Compute y = m x, where m = 1 if w contains no keys for masks."""
        m = self.draw(w[KEYS], x) if KEYS in w else 1.0
        return m * x, DropoutJacobian(m)

    def draw(self, keys: Array, x: Array) -> Array:
        """Draw m on the host.  For a given layer, m depends only on the key and on the shape and dtype of x."""
        shape = x.shape[x.ndim - 1 - len(self.shape) :]
        if keys.ndim == 2:
            return array_namespace(x).stack([self.draw(key, x) for key in keys])
        rng = np.random.default_rng([*map(int, keys), crc32(self.name.encode())])
        m = (rng.random(shape) >= self.rate) / (1 - self.rate)
        return to_library(m.astype(str(x.dtype)), array_namespace(x))


@bind.register
def _(layer: s.Dropout, site: Site, parametrization: Parametrization, name: str) -> BoundDropout:
    return BoundDropout(float(layer.rate), site.shape, name)
