"""Compute AdaptiveAvgPool:  y = A x B'     for each channel of an image x : (H, W); A : (H', H), B : (W', W)

jvp     dy = A dx B'
vjp     dx = A' u B
gram    0: there are no weights

Row i of A averages over the pixels p with floor(i H / H') <= p < ceil((i + 1) H / H').
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, Host, array_namespace, to_library
from minintk.layers.contract import LayerJacobian, Tensor, Weights, bind
from minintk.spec.checks import check_sizes
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, Site, out_shape


@dataclass(frozen=True)
class AdaptiveAvgPool(s.Layer):
    """y[i] is the mean of x over window i of the `size` windows that cover the image, as in torch's AdaptiveAvgPool2d.

    Window i of n windows on m pixels covers the pixels p with floor(i m / n) <= p < ceil((i + 1) m / n).  Windows
    overlap if n does not divide m, so n can be larger than m.  A single pixel is copied to all windows.

    size : the number of windows along each axis, a number or a pair (along H, along W).

    (N, H, W, C) -> (N, H', W', C) or (N, L, C) -> (N, L', C).  Raises ValueError for sizes below 1 and for vectors.

    >>> out_shape(AdaptiveAvgPool((2, 3)), (7, 7, 16))
    (2, 3, 16)
    """

    size: s.Size = 1

    def __post_init__(self) -> None:
        check_sizes("AdaptiveAvgPool", "size", self.size, (1, 2))


@out_shape.register
def _(layer: AdaptiveAvgPool, shape: Shape) -> Shape:
    axes = len(shape) - 1
    size = layer.size if isinstance(layer.size, tuple) else (layer.size,) * axes
    if axes not in (1, 2) or len(size) != axes:
        raise ValueError(f"{layer!r} expects images (H, W, C) or sequences (L, C), got examples of shape {shape}")
    return (*map(int, size), shape[-1])


def means(m: int, n: int) -> Host:
    """Return A : (n, m), the matrix that averages m pixels over n windows.

    >>> means(3, 2)
    array([[0.5, 0.5, 0. ],
           [0. , 0.5, 0.5]])
    """
    i, pixel = np.arange(n)[:, None], np.arange(m)
    inside = (pixel >= i * m // n) & (pixel < -(-(i + 1) * m // n))
    return np.asarray(inside / inside.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class AdaptiveAvgPoolJacobian(LayerJacobian):
    """The Jacobian of AdaptiveAvgPool.  The map is linear, so only the layer's matrices are needed."""

    layer: BoundAdaptiveAvgPool

    def jvp(self, dw: Weights, dx: Array | None) -> Array | None:
        """Compute dy = A dx B'."""
        return None if dx is None else along(self.layer.matrices, dx)

    def vjp(self, u: Array, dw: Weights | None) -> Array:
        """Compute dx = A' u B."""
        return along([A.T for A in self.layer.matrices], u)


@dataclass(frozen=True)
class BoundAdaptiveAvgPool:
    """An AdaptiveAvgPool layer bound to a network, with a matrix for each axis of the image."""

    matrices: list[Host]
    tensors: tuple[Tensor, ...] = ()

    def __call__(self, w: Weights, x: Array) -> tuple[Array, AdaptiveAvgPoolJacobian]:
        """Compute y = A x B'."""
        return along(self.matrices, x), AdaptiveAvgPoolJacobian(self)


def along(matrices: list[Host], x: Array) -> Array:
    """Multiply images x : (..., H, W, C) by two matrices, along H and W, or sequences (..., L, C) by one along L."""
    xp, (*_, last) = array_namespace(x), matrices
    A, B = (to_library(one.astype(str(x.dtype)), xp) for one in (matrices[0], last))
    if len(matrices) == 2:
        *lead, H, W, C = x.shape
        x = (A @ x.reshape((*lead, H, W * C))).reshape((*lead, A.shape[0], W, C))
    return B @ x


@bind.register
def _(layer: AdaptiveAvgPool, site: Site, parametrization: Parametrization, name: str) -> BoundAdaptiveAvgPool:
    after = out_shape(layer, site.shape)
    return BoundAdaptiveAvgPool([means(m, n) for m, n in zip(site.shape[:-1], after[:-1], strict=True)])
