"""Layers side by side: sums, products and concatenations of several branches; a factor; and masks.

    Sum        y = b_1(x) + ... + b_k(x)         Scale      y = c x
    Product    y = b_1(x) * ... * b_k(x)         Dropout    y = m x / (1 - rate),  m = 0 or 1 at random
    Concat     y = (b_1(x), ..., b_k(x)), one after the other along the features

At infinite width: K_1 + ... + K_k, K_1 * ... * K_k, and sum_i n_i / n K_i for branches of n_i features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minintk.spec.layers import Activation, Layer, Sequential, Several
from minintk.validate import number

__all__ = ["Branches", "Concat", "Dropout", "Product", "Scale", "Sum", "as_sequential"]


class Branches(Several):
    """Base class of layers that go through several branches, each on the same x.

    Branches are named by their position, ``"1.0.W"``.  TypeError for no branch at all, and for what is no layer.
    """

    def __init__(self, *layers: Layer) -> None:
        super().__init__(*layers)
        if not layers:
            raise TypeError(f"{type(self).__name__} expects at least one branch: a layer, or mn.Sequential(...)")


class Sum(Branches):
    """y = b_1(x) + ... + b_k(x), of one shape.  `Residual` is the sum of two, one of them the identity.

    At infinite width K = K_1 + ... + K_k, and the same for Theta, where all branches but one end in weights.
    ValueError, once the shape of the inputs is known, where shapes differ.

    >>> from minintk.spec import Dense, Identity, ReLU, Sequential
    >>> len(Sum(Identity(), Dense(64), Sequential(ReLU(), Dense(64))))
    3
    """


class Product(Branches):
    """y = b_1(x) * ... * b_k(x), number by number, of one shape: gates, multiplicative interactions.

    At infinite width K = K_1 * K_2 and Theta = Theta_1 * K_2 + K_1 * Theta_2, and so on, if all branches but one have
    weights of their own that their whole input passes, which makes them independent: Sequential(Dense(64), ReLU()), not
    ReLU().  In all but one the features have one variance, unlike those of a Concat or of flattened pixels.
    Products of Gaussians are not Gaussian: weights come before the next activation.
    ValueError, once the shape of the inputs is known, where shapes differ.

    >>> from minintk.spec import Dense, Sequential, Sigmoid
    >>> gate = Product(Dense(64), Sequential(Dense(64), Sigmoid()))
    """


class Concat(Branches):
    """y = (b_1(x), ..., b_k(x)), one after the other along the last axis (features, or channels).

    At infinite width K = sum_i n_i / n K_i, for branches of n_i features, n in all, and the same for Theta: widths
    that grow together keep their ratios.  Weights come before the next activation, as features differ in variance.
    ValueError, once the shape of the inputs is known, where other axes than the last differ.

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
    """y = m x / (1 - rate): every number is 0 with probability `rate`, and scaled up where it is not.

    A network has no masks unless it is given some, ``net.with_dropout(rng)``, for training; see `Network.with_dropout`.
    The kernel at infinite width is that of networks with masks, drawn for each example by itself: K(x, x) / (1 - rate),
    and K(x, x') as it was (Srivastava et al. 2014; Schoenholz et al. 2017).  An x2 that is passed to a kernel is other
    examples with masks of their own, even if it equals x1: `k(x, x)` is `k(x)` without 1 / (1 - rate).
    Masks of the inputs themselves do not average out as widths grow, so that weights have to come first.  Without
    masks, leave the layer out.

    rate : from 0 to below 1, as in PyTorch and Flax; that of neural-tangents is 1 - rate.  ValueError for others.
    """

    rate: float = 0.5

    def __post_init__(self) -> None:
        if number("Dropout(rate=...)", self.rate, zero=True) >= 1:
            raise ValueError(f"Dropout(rate=...) expects a number below 1, got {self.rate!r}")


def as_sequential(spec: Any) -> Sequential:
    """The spec as a Sequential: itself, or a bare layer wrapped into one.

    >>> from minintk.spec import Dense
    >>> as_sequential(Dense(3))
    Sequential(Dense(width=3, w_std=1.0, b_std=0.0, b_init='normal'))
    """
    if isinstance(spec, Sequential):
        return spec
    if isinstance(spec, Layer):
        return Sequential(spec)
    raise TypeError(f"expected a spec such as mn.Sequential(mn.Dense(512), mn.ReLU(), mn.Dense(1)), got {spec!r}")
