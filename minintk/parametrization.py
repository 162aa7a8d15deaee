"""Parametrizations: one table, (role, fan-in, fan-out) -> (multiplier, init std, learning-rate scale).

A weight matrix W enters the network as  z = multiplier * x W,  its entries are drawn with standard deviation
`std`, and its learning rate is lr * `lr`.  sigma below is the layer's own w_std or b_std.

| parametrization | weight: multiplier | weight: std            | bias: multiplier | bias: std              |
| --------------- | ------------------ | ---------------------- | ---------------- | ---------------------- |
| NTK             | sigma/sqrt(fan_in) | 1                      | sigma            | 1                      |
| Standard        | 1                  | sigma/sqrt(fan_in)     | 1                | sigma                  |
| PyTorch         | 1                  | sigma/sqrt(3 fan_in) U | 1                | sigma/sqrt(3 fan_in) U |

U: drawn uniformly, so that the interval is +-sigma/sqrt(fan_in); the rest is normal.  A bias with
b_init="zeros" keeps its multiplier and starts at 0.  Live weights are never rescaled.

A new parametrization is one new row: subclass `Parametrization`, give it `row`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import sqrt
from typing import Literal

from minintk.structure import Place


@dataclass(frozen=True)
class Role:
    """What a tensor is for: "weight" or "bias", and the place of its layer, "input", "hidden" or "output"."""

    kind: Literal["weight", "bias"]
    place: Place = "hidden"


@dataclass(frozen=True)
class Row:
    """One row of the table: how a tensor enters the network, how it is drawn, how fast it learns."""

    multiplier: float
    std: float
    lr: float = 1.0
    draw: Literal["normal", "uniform"] = "normal"


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
    Row(multiplier=0.2, std=1.0, lr=1.0, draw='normal')
    """

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        return Row(sigma / sqrt(fan_in) if role.kind == "weight" else sigma, 1.0)


@dataclass(frozen=True)
class Standard(Parametrization):
    """z = x W + b with W ~ N(0, sigma_w^2 / fan_in), b ~ N(0, sigma_b^2).

    >>> Standard().row(Role("weight"), fan_in=100, fan_out=10, sigma=2.0)
    Row(multiplier=1.0, std=0.2, lr=1.0, draw='normal')
    """

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        return Row(1.0, sigma / sqrt(fan_in) if role.kind == "weight" else sigma)


@dataclass(frozen=True)
class PyTorch(Parametrization):
    """z = x W + b with W, b ~ U(-sigma/sqrt(fan_in), sigma/sqrt(fan_in)).

    w_std = b_std = 1 is the default of torch.nn.Linear.

    >>> PyTorch().row(Role("bias"), fan_in=3, fan_out=10, sigma=1.0)
    Row(multiplier=1.0, std=0.3333333333333333, lr=1.0, draw='uniform')
    """

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        return Row(1.0, sigma / sqrt(3 * fan_in), draw="uniform")
