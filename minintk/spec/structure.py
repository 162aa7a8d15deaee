"""Define sums, products and concatenations of branches; a factor; and dropout masks.

    Sum        y = b_1(x) + ... + b_k(x)         Scale      y = c x
    Product    y = b_1(x) * ... * b_k(x)         Dropout    y = m x / (1 - rate),  m = 0 or 1 at random
    Concat     y = (b_1(x), ..., b_k(x)), concatenated along the features

At infinite width: K_1 + ... + K_k, K_1 * ... * K_k, and sum_i n_i / n K_i for branches of n_i features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minintk.spec.layers import Activation, Layer, Sequential, Several
from minintk.validate import number

__all__ = ["Branches", "Concat", "Dropout", "Product", "Scale", "Sum", "as_sequential"]


class Branches(Several):
    """Base class of layers with branches on one x, named by position, ``"1.0.W"``; TypeError without a branch."""

    def __init__(self, *layers: Layer) -> None:
        super().__init__(*layers)
        if not layers:
            raise TypeError(f"{type(self).__name__} expects at least one branch: a layer, or mn.Sequential(...)")


class Sum(Branches):
    """y = b_1(x) + ... + b_k(x), of one shape.  `Residual` is the sum of a branch and a shortcut.

    At infinite width K = K_1 + ... + K_k, and the same for Theta, if all branches but one end in weights.
    ValueError, once the input shape is known, if shapes differ.

    >>> from minintk.spec import Dense, Identity, ReLU, Sequential
    >>> len(Sum(Identity(), Dense(64), Sequential(ReLU(), Dense(64))))
    3
    """


class Product(Branches):
    """y = b_1(x) * ... * b_k(x), elementwise, of one shape: gates, multiplicative interactions.

    At infinite width (k = 2) K = K_1 * K_2, Theta = Theta_1 * K_2 + K_1 * Theta_2, for independent branches: in all but
    one the whole input passes weights of the branch, as in Sequential(Dense(64), ReLU()), not ReLU().
    In all but one, features have equal variance, unlike those of a Concat or of flattened pixels.
    Products of Gaussians are not Gaussian, so weights have to come before the next activation. ValueError, once the
    input shape is known, if shapes differ.

    >>> from minintk.spec import Dense, Sequential, Sigmoid
    >>> gate = Product(Dense(64), Sequential(Dense(64), Sigmoid()))
    """


class Concat(Branches):
    """y = (b_1(x), ..., b_k(x)), concatenated along the last axis (features, or channels).

    At infinite width K = sum_i n_i / n K_i, for branches of n_i features, n in all, and the same for Theta; widths grow
    at fixed ratios.  Weights have to come before the next activation, since the features of different branches differ
    in variance. ValueError, once the input shape is known, if axes other than the last differ.

    >>> from minintk.spec import Dense
    >>> from minintk.spec.shapes import out_shape
    >>> out_shape(Concat(Dense(64), Dense(32)), (10,))
    (96,)
    """


@dataclass(frozen=True)
class Scale(Activation):
    """y = factor x.  At infinite width factor^2 K and factor^2 Theta.  ValueError for 0, infinity and NaN."""

    factor: float

    def __post_init__(self) -> None:
        if number("Scale(factor=...)", self.factor, negative=True) == 0:
            raise ValueError("Scale(factor=...) expects a number other than 0, got 0")


@dataclass(frozen=True)
class Dropout(Layer):
    """y = m x / (1 - rate): each number is 0 with probability `rate`, and scaled up otherwise.

    A network has masks only if they are drawn, ``net.with_dropout(rng)``, for training; see `Network.with_dropout`.
    The infinite-width kernel is that of networks with masks drawn per example: K(x, x) / (1 - rate), and K(x, x')
    unchanged (Srivastava et al. 2014; Schoenholz et al. 2017).  x2 of a kernel are always other examples with their own
    masks, even if x2 = x1: `k(x, x)` is `k(x)` without 1 / (1 - rate).  Weights have to come first, since masks of the
    inputs do not average out as widths grow.  Without masks, leave the layer out.

    rate : from 0 to below 1, as in PyTorch and Flax; neural-tangents takes 1 - rate.  ValueError for others.
    """

    rate: float = 0.5

    def __post_init__(self) -> None:
        if number("Dropout(rate=...)", self.rate, zero=True) >= 1:
            raise ValueError(f"Dropout(rate=...) expects a number below 1, got {self.rate!r}")


def as_sequential(spec: Any) -> Sequential:
    """Return the spec as a Sequential: itself, or a bare layer wrapped into one.

    >>> from minintk.spec import Dense
    >>> as_sequential(Dense(3))
    Sequential(Dense(width=3, w_std=1.0, b_std=0.0, b_init='normal'))
    """
    if isinstance(spec, Sequential):
        return spec
    if isinstance(spec, Layer):
        return Sequential(spec)
    raise TypeError(f"expected a spec such as mn.Sequential(mn.Dense(512), mn.ReLU(), mn.Dense(1)), got {spec!r}")
