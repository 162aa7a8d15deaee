"""Parametrizations: one table, (role, fan-in, fan-out) -> (multiplier, init std, learning-rate scales).

A weight matrix W enters the network as  z = multiplier * x W,  its entries are drawn with standard deviation
`std`, and its learning rate is lr * `lr` under gradient descent, lr * `adam` under Adam.  sigma below is the layer's
own w_std or b_std; i and o are fan-in and fan-out.

| weights     | multiplier                | std                             | lr              | adam                 |
| ----------- | ------------------------- | ------------------------------- | --------------- | -------------------- |
| NTK         | sigma/sqrt(i)             | 1                               | 1               | 1                    |
| Standard    | 1                         | sigma/sqrt(i)                   | 1               | 1                    |
| PyTorch     | 1                         | sigma/sqrt(3 i) U               | 1               | 1                    |
| SpectralMuP | 1                         | sigma/sqrt(i) min(1, sqrt(o/i)) | o/i             | 1/i                  |
| MeanField   | sigma/sqrt(i); output: /i | 1                               | o;   output: i  | 1/sqrt(i); output: 1 |

| biases      | multiplier                | std                             | lr              | adam                 |
| ----------- | ------------------------- | ------------------------------- | --------------- | -------------------- |
| NTK         | sigma                     | 1                               | 1               | 1                    |
| Standard    | 1                         | sigma                           | 1               | 1                    |
| PyTorch     | 1                         | sigma/sqrt(3 i) U               | 1               | 1                    |
| SpectralMuP | 1                         | sigma                           | o               | 1                    |
| MeanField   | sigma                     | 1                               | o;   output: 1  | 1                    |

U: drawn uniformly, so that the interval is +-sigma/sqrt(i); the rest is normal.  A bias with b_init="zeros" keeps its
multiplier and starts at 0.  Live weights are never rescaled.  A convolution has i = K K C_in and o = C_out; o/i under
the root of SpectralMuP is C_out / C_in, see there.  The layers of residual branches are layers like others: a factor
1/sqrt(branches) against depth is the spec's, in the w_std of a branch's last layer.

A new parametrization is one new row: subclass `Parametrization`, give it `row`.  How rows scale with the width, and
what training does then, is in `minintk.spec.abc_parametrization`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import sqrt
from typing import Literal

from minintk.spec.shapes import Place

Rule = Literal["sgd", "adam", "none"]
"""Which rates an optimiser takes: those for steps in proportion to the gradient (SGD, momentum), those for steps of one
size in every entry (Adam), or none, because it sets the size of its steps itself."""


@dataclass(frozen=True)
class Role:
    """What a tensor is for: "weight" or "bias", and the place of its layer, "input", "hidden" or "output".

    window : positions that a convolution reads at once, K K; they are a factor of its fan-in.  1 for a Dense.
    """

    kind: Literal["weight", "bias"]
    place: Place = "hidden"
    window: int = 1


@dataclass(frozen=True)
class Row:
    """One row of the table: how a tensor enters the network, how it is drawn, how fast it learns.

    lr : the scale of the learning rate under gradient descent.  adam : that under Adam; None, the same as `lr`.
    """

    multiplier: float
    std: float
    lr: float = 1.0
    draw: Literal["normal", "uniform"] = "normal"
    adam: float | None = None

    def rate(self, rule: Rule) -> float:
        """The scale of the learning rate under an optimiser of this rule.

        >>> Row(1.0, 1.0, lr=4.0, adam=0.5).rate("adam"), Row(1.0, 1.0, lr=4.0).rate("adam")
        (0.5, 4.0)
        """
        if rule == "none":
            return 1.0
        return self.lr if rule == "sgd" or self.adam is None else self.adam


class Parametrization(ABC):
    """Base class: subclass it as a frozen dataclass with a `row`."""

    __slots__ = ()

    @abstractmethod
    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        """The row for a tensor of this role, where `sigma` is the layer's own w_std or b_std."""


@dataclass(frozen=True)
class NTK(Parametrization):
    """z = sigma_w / sqrt(fan_in) * x W + sigma_b * b with W, b ~ N(0, 1) (Jacot et al. 2018; Lee et al. 2019, eq. 1).

    >>> NTK().row(Role("weight"), fan_in=100, fan_out=10, sigma=2.0)
    Row(multiplier=0.2, std=1.0, lr=1.0, draw='normal', adam=None)
    """

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        return Row(sigma / sqrt(fan_in) if role.kind == "weight" else sigma, 1.0)


@dataclass(frozen=True)
class Standard(Parametrization):
    """z = x W + b with W ~ N(0, sigma_w^2 / fan_in), b ~ N(0, sigma_b^2).

    >>> Standard().row(Role("weight"), fan_in=100, fan_out=10, sigma=2.0)
    Row(multiplier=1.0, std=0.2, lr=1.0, draw='normal', adam=None)
    """

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        return Row(1.0, sigma / sqrt(fan_in) if role.kind == "weight" else sigma)


@dataclass(frozen=True)
class PyTorch(Parametrization):
    """z = x W + b with W, b ~ U(-sigma/sqrt(fan_in), sigma/sqrt(fan_in)).

    w_std = b_std = 1 is the default of torch.nn.Linear.

    >>> PyTorch().row(Role("bias"), fan_in=3, fan_out=10, sigma=1.0)
    Row(multiplier=1.0, std=0.3333333333333333, lr=1.0, draw='uniform', adam=None)
    """

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        return Row(1.0, sigma / sqrt(3 * fan_in), draw="uniform")


@dataclass(frozen=True)
class SpectralMuP(Parametrization):
    """The maximal update parametrization by its spectral condition (Yang, Simon, Bernstein 2023):

        |W| ~ |dW| ~ sqrt(fan_out / fan_in)    spectral norms, so that every |h_l| and |dh_l| is of order sqrt(n_l)

    Gaussian W of deviation s has |W| = s (sqrt(fan_in) + sqrt(fan_out)).  Updates have low rank: the gradient's norm is
    sqrt(fan_in / fan_out), so lr ~ fan_out / fan_in; Adam's entries are +-lr, so |dW| = lr sqrt(fan_in fan_out) and
    lr ~ 1/fan_in.  A bias is a matrix with fan_in = 1.  A convolution of K K positions, which add up in an update, has
    |W| = s K (sqrt(C_in) + sqrt(C_out)): the same with fan_in = K K C_in, but for the root, sqrt(C_out / C_in).
    With fan_in = d, n, n and fan_out = n, n, 1 these are sigma = 1/sqrt(d), 1/sqrt(n), 1/n and eta = n/d, 1, 1/n, the
    table for linear networks in Pleiss's lecture 11.

    >>> rows = [SpectralMuP().row(Role("weight"), i, o, sigma=1.0) for i, o in ((16, 400), (400, 400), (400, 1))]
    >>> [(round(row.std, 6), row.lr, row.adam) for row in rows]
    [(0.25, 25.0, 0.0625), (0.05, 1.0, 0.0025), (0.0025, 0.0025, 0.0025)]
    """

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        if role.kind == "bias":
            return Row(1.0, sigma, lr=float(fan_out), adam=1.0)
        narrow = min(1.0, sqrt(role.window * fan_out / fan_in))
        return Row(1.0, sigma / sqrt(fan_in) * narrow, lr=fan_out / fan_in, adam=1 / fan_in)


@dataclass(frozen=True)
class MeanField(Parametrization):
    """NTK's, with 1/fan_in in place of 1/sqrt(fan_in) at the output, and learning rates times the width:

        f(x) = 1/n sum_i a_i phi(w_i x),    d theta/dt = - n grad L           (Mei et al. 2018; Chizat, Bach 2018)

    and the same for deeper networks (Bordelon, Pehlevan 2022).  Each neuron moves by order one: `SpectralMuP` in other
    variables, up to constants (`minintk.spec.abc_parametrization`).

    >>> MeanField().row(Role("weight", "output"), fan_in=100, fan_out=1, sigma=1.0)
    Row(multiplier=0.01, std=1.0, lr=100.0, draw='normal', adam=1.0)
    """

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        output = role.place == "output"
        if role.kind == "bias":
            return Row(sigma, 1.0, lr=1.0 if output else float(fan_out), adam=1.0)
        if output:
            return Row(sigma / fan_in, 1.0, lr=float(fan_in), adam=1.0)
        return Row(sigma / sqrt(fan_in), 1.0, lr=float(fan_out), adam=1 / sqrt(fan_in))
