"""Define sums, products and concatenations of branches, multiplication by a constant, and dropout masks.

    Sum        y = b_1(x) + ... + b_k(x)         Scale      y = c x
    Product    y = b_1(x) * ... * b_k(x)         Dropout    y = m x / (1 - rate),  m = 0 or 1 at random
    Concat     y = (b_1(x), ..., b_k(x)), of n = n_1 + ... + n_k features

Infinite-width kernels are K_1 + ... + K_k for Sum, K_1 * ... * K_k for Product, and sum_i n_i / n K_i for Concat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minintk.spec.layers import Activation, Layer, Sequential, Several
from minintk.validate import number

__all__ = ["Branches", "Concat", "Dropout", "Product", "Scale", "Sum", "as_sequential"]


class Branches(Several):
    """Base class of layers whose branches share one input x.  Weights are named by position, e.g. ``"1.0.W"``."""

    def __init__(self, *layers: Layer) -> None:
        super().__init__(*layers)
        if not layers:
            raise TypeError(f"{type(self).__name__} expects at least one branch: a layer, or mn.Sequential(...)")


class Sum(Branches):
    """y = b_1(x) + ... + b_k(x).  `Residual` is the sum of a branch and a shortcut.

    At infinite width, K = K_1 + ... + K_k if all branches, or all but one, end in weights.  The same holds for Theta.
    Given an input shape, `out_shape` raises ValueError if the branches have different output shapes.

    >>> from minintk.spec import Dense, Identity, ReLU, Sequential
    >>> len(Sum(Identity(), Dense(64), Sequential(ReLU(), Dense(64))))
    3
    """


class Product(Branches):
    """y = b_1(x) * ... * b_k(x), the elementwise product of branches, e.g. for gates.

    At infinite width, K = K_1 * K_2 and Theta = Theta_1 * K_2 + K_1 * Theta_2 for k = 2 independent branches.  For
    independence, all branches except one must pass their whole input through separate weights, as in
    Sequential(Dense(64), ReLU()).  In all branches but one, features must have equal variances, which excludes Concat
    and flattened pixels.  An activation can follow only after further weights, because products of Gaussians are not
    Gaussian.  Given an input shape, `out_shape` raises ValueError if the branches have different output shapes.

    >>> from minintk.spec import Dense, Sequential, Sigmoid
    >>> gate = Product(Dense(64), Sequential(Dense(64), Sigmoid()))
    """


class Concat(Branches):
    """y = (b_1(x), ..., b_k(x)), concatenated along the last axis (features, or channels).

    At infinite width with fixed n_i / n, K = sum_i n_i / n K_i for branches of n_i features, n in total.  Theta obeys
    the same formula.  An activation can follow only after further weights, because features of different branches can
    differ in variance.  Given an input shape, `out_shape` raises ValueError if axes other than the last differ.

    >>> from minintk.spec import Dense
    >>> from minintk.spec.shapes import out_shape
    >>> out_shape(Concat(Dense(64), Dense(32)), (10,))
    (96,)
    """


@dataclass(frozen=True)
class Scale(Activation):
    """y = factor x, with kernels factor^2 K and factor^2 Theta.  Raises ValueError for factor = 0, inf or NaN."""

    factor: float

    def __post_init__(self) -> None:
        if number("Scale(factor=...)", self.factor, negative=True) == 0:
            raise ValueError("Scale(factor=...) expects a number other than 0, got 0")


@dataclass(frozen=True)
class Dropout(Layer):
    """y = m x / (1 - rate), where m = 0 with probability `rate` and m = 1 otherwise, for each entry of x.

    Only networks returned by ``net.with_dropout(rng)`` apply masks.  Other networks compute y = x.  At infinite width,
    with masks drawn per example, the kernel is K(x, x) / (1 - rate) on the diagonal and K(x, x') elsewhere (Srivastava
    et al. 2014; Schoenholz et al. 2017).  For k = analytic.kernel(spec), `k.nngp(x, x)` uses separate masks for its
    second argument, and lacks the factor 1 / (1 - rate) of `k.nngp(x)`.  Kernels require weights in an earlier layer:
    masks of the inputs do not average out as widths grow.  For a kernel without masks, omit the layer.

    rate : the probability of a zero, in [0, 1) or ValueError, as in PyTorch and Flax; neural-tangents expects 1 - rate.
    """

    rate: float = 0.5

    def __post_init__(self) -> None:
        if number("Dropout(rate=...)", self.rate, zero=True) >= 1:
            raise ValueError(f"Dropout(rate=...) expects a number below 1, got {self.rate!r}")


def as_sequential(spec: Any) -> Sequential:
    """Return the spec if it is a Sequential.  Any other layer is wrapped in a Sequential.

    >>> from minintk.spec import Dense
    >>> as_sequential(Dense(3))
    Sequential(Dense(width=3, w_std=1.0, b_std=0.0, b_init='normal'))
    """
    if isinstance(spec, Sequential):
        return spec
    if isinstance(spec, Layer):
        return Sequential(spec)
    raise TypeError(f"expected a spec such as mn.Sequential(mn.Dense(512), mn.ReLU(), mn.Dense(1)), got {spec!r}")
