"""Define parametrizations by one table: (role, fan-in, fan-out) -> (multiplier, init std, learning-rate scales).

A weight matrix W enters the network as  z = multiplier * x W.  Its entries are drawn with standard deviation `std`.
The learning rate is multiplied by `lr` under gradient descent and by `adam` under Adam.  sigma is the layer's w_std or
b_std, i is the fan-in, and o is the fan-out.

| weights     | multiplier                | std                             | lr              | adam                 |
| ----------- | ------------------------- | ------------------------------- | --------------- | -------------------- |
| NTK         | sigma/sqrt(i)             | 1                               | 1               | 1                    |
| Standard    | 1                         | sigma/sqrt(i)                   | 1               | 1                    |
| PyTorch     | 1                         | sigma/sqrt(3 i) U               | 1               | 1                    |
| SpectralMuP | 1                         | sigma/sqrt(i) min(1, sqrt(o/i)) | o/i             | 1/i                  |
|             |                           | input: sigma/sqrt(i)            |                 |                      |
| MeanField   | sigma/sqrt(i); output: /i | 1                               | o;   output: i  | 1/sqrt(i); output: 1 |

| biases      | multiplier                | std                             | lr              | adam                 |
| ----------- | ------------------------- | ------------------------------- | --------------- | -------------------- |
| NTK         | sigma                     | 1                               | 1               | 1                    |
| Standard    | 1                         | sigma                           | 1               | 1                    |
| PyTorch     | 1                         | sigma/sqrt(3 i) U               | 1               | 1                    |
| SpectralMuP | 1                         | sigma                           | o               | 1                    |
| MeanField   | sigma                     | 1                               | o;   output: 1  | 1                    |

U marks uniform draws from [-sigma/sqrt(i), sigma/sqrt(i)].  All other draws are normal.  A bias with b_init="zeros"
keeps its multiplier and starts at 0.  No row rescales weights during training.  A convolution has i = K K C_in and
o = C_out, but in the std of `SpectralMuP`, sqrt(o/i) means sqrt(C_out / C_in).

Depth: with L residual branches, SpectralMuP and MeanField have additional factors (a bias has those of its layer):

| in a branch                    | multiplier or std | lr                       | adam                         |
| ------------------------------ | ----------------- | ------------------------ | ---------------------------- |
| SpectralMuP, last weights      | 1/sqrt(L)         | 1/L                      | 1/L                          |
| MeanField, last weights        | 1/sqrt(L)         | 1                        | 1/sqrt(L)                    |
| both, earlier weights          | 1                 | 1                        | 1/sqrt(L)                    |

At initialisation, branches then add terms of order 1/sqrt(L) with random signs.  A step adds terms of order 1/L with
equal signs (Yang, Yu, Zhu, Hayou 2023; Bordelon, Noci, Li, Hanin, Pehlevan 2023).  No other entry depends on L.

To add a parametrization, subclass `Parametrization` and define `row`.  `minintk.spec.abc_parametrization` computes the
powers of the width in these rows, and predicts how training behaves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import sqrt
from typing import Literal

from minintk.spec.shapes import Place
from minintk.validate import number, whole

Rule = Literal["sgd", "adam", "none"]
"""The learning rates that an optimiser uses: "sgd" for steps proportional to the gradient (SGD, momentum), "adam" for
steps of equal size in every entry, and "none" if the optimiser sets the size of its steps."""

NO_KERNEL = "Adam has no tangent kernel, because its steps are not linear in the gradient"
"""The reason why J S J' is defined only for gradient descent."""


@dataclass(frozen=True)
class Role:
    """The role of a tensor: "weight" or "bias", and the place of its layer, "input", "hidden" or "output".

    window : the number of positions in a convolution's window, K K or K, which is a factor of the fan-in; 1 for Dense.
    branches : the number L of residual branches in the network for a layer inside a branch, otherwise 1.
    end : True for the last weights of their branch.
    """

    kind: Literal["weight", "bias"]
    place: Place = "hidden"
    window: int = 1
    branches: int = 1
    end: bool = False

    @property
    def depth(self) -> tuple[float, float]:
        """Return (1/sqrt(L) for a branch's last weights, else 1; 1/sqrt(L) for all weights in a branch, else 1)."""
        scale = self.branches**-0.5
        return scale if self.end else 1.0, scale


@dataclass(frozen=True)
class Row:
    """One row of the table: a tensor's multiplier, its distribution and its learning-rate scales.

    lr : the scale of the learning rate under gradient descent, or None if there is none.  adam : the scale
    under Adam, or None for the value of `lr`.  Raises ValueError for a rate that is not a finite number >= 0.
    """

    multiplier: float
    std: float
    lr: float | None = 1.0
    draw: Literal["normal", "uniform"] = "normal"
    adam: float | None = None

    def __post_init__(self) -> None:
        for name in ("lr", "adam"):
            if (scale := getattr(self, name)) is not None:
                number(f"Row({name}=...)", scale, zero=True)

    def rate(self, rule: Rule) -> float:
        """Return the learning-rate scale for an optimiser with this rule.  Raise ValueError if the row has none.

        >>> Row(1.0, 1.0, lr=4.0, adam=0.5).rate("adam"), Row(1.0, 1.0, lr=4.0).rate("adam")
        (0.5, 4.0)
        """
        if rule == "none":
            return 1.0
        if (found := self.lr if rule == "sgd" or self.adam is None else self.adam) is None:
            raise ValueError(
                "these learning rates are Adam's, and gradient descent has none: take mn.ABC(..., rule='sgd'), or train"
                f" with mn.Adam; {NO_KERNEL}"
            )
        return found


class Parametrization(ABC):
    """Base class of parametrizations.  A subclass is a frozen dataclass that defines `row`."""

    __slots__ = ()

    @abstractmethod
    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        """Return the row for a tensor of this role.  sigma : the layer's w_std or b_std."""


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

    w_std = b_std = 1 gives the default initialisation of torch.nn.Linear.

    >>> PyTorch().row(Role("bias"), fan_in=3, fan_out=10, sigma=1.0)
    Row(multiplier=1.0, std=0.3333333333333333, lr=1.0, draw='uniform', adam=None)
    """

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        return Row(1.0, sigma / sqrt(3 * fan_in), draw="uniform")


@dataclass(frozen=True)
class SpectralMuP(Parametrization):
    """The maximal update parametrization, defined by a spectral condition (Yang, Simon, Bernstein 2023):

        |W| ~ |dW| ~ sqrt(fan_out / fan_in)    spectral norms, so that every |h_l| and |dh_l| is of order sqrt(n_l)

    A Gaussian W of standard deviation s has |W| ~ s (sqrt(fan_in) + sqrt(fan_out)).  Gradients have low rank and norms
    of order sqrt(fan_in / fan_out), so lr ~ fan_out / fan_in.  Adam's updates have entries +-lr, so |dW| = lr
    sqrt(fan_in fan_out) and lr ~ 1/fan_in.  A bias has fan_in = 1.  A convolution sums over K K positions, so |W| = s K
    (sqrt(C_in) + sqrt(C_out)).  Its fan_in is K K C_in, but |W| must be of order sqrt(C_out / C_in).
    Input weights have standard deviation 1/sqrt(fan_in) for any fan_out.  Features are then of order one, because
    inputs are not aligned with these weights.  A factor sqrt(fan_out / fan_in) < 1 would make features small.
    For fan_in = d, n, n and fan_out = n, n, 1, the standard deviations are 1/sqrt(d), 1/sqrt(n), 1/n and the rates n/d,
    1, 1/n, as in the table for linear networks in Pleiss's lecture 11.

    >>> rows = [SpectralMuP().row(Role("weight"), i, o, sigma=1.0) for i, o in ((16, 400), (400, 400), (400, 1))]
    >>> [(round(row.std, 6), row.lr, row.adam) for row in rows]
    [(0.25, 25.0, 0.0625), (0.05, 1.0, 0.0025), (0.0025, 0.0025, 0.0025)]

    base_width : the width b of hidden layers (channels, for convolutions) at which scales and rates equal `Standard`'s
    outside residual branches.  In grouped convolutions and a Dense after Flatten, fan_in is compared with b.  Rates
    tuned at width b transfer to larger widths (Yang et al. 2022).  Raises ValueError unless b is 1, 2, ... or None.

    >>> SpectralMuP(base_width=100).row(Role("weight"), 400, 400, sigma=1.0)
    Row(multiplier=1.0, std=0.05, lr=1.0, draw='normal', adam=0.25)
    """

    base_width: int | None = None

    def __post_init__(self) -> None:
        if self.base_width is not None:
            whole("SpectralMuP(base_width=...)", self.base_width)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.base_width is None else f'base_width={self.base_width}'})"

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        (end, branch), weight = role.depth, role.kind == "weight"
        std, lr, adam = self._scales(role, fan_in, fan_out)
        if (b := self.base_width) is not None:
            i = fan_in if role.place == "input" else role.window * b
            base = self._scales(role, i, fan_out if role.place == "output" else b)
            std, lr, adam = std / base[0] / (sqrt(i) if weight else 1.0), lr / base[1], adam / base[2]
        return Row(1.0, sigma * std * end, lr=lr * end**2, adam=adam * end * branch)

    def _scales(self, role: Role, fan_in: int, fan_out: int) -> tuple[float, float, float]:
        """Return (std / sigma, lr, adam) outside of residual branches."""
        if role.kind == "bias":
            return 1.0, float(fan_out), 1.0
        narrow = 1.0 if role.place == "input" else min(1.0, sqrt(role.window * fan_out / fan_in))
        return narrow / sqrt(fan_in), fan_out / fan_in, 1 / fan_in


@dataclass(frozen=True)
class MeanField(Parametrization):
    """NTK with 1/fan_in instead of 1/sqrt(fan_in) at the output, and learning rates proportional to the width:

        f(x) = 1/n sum_i a_i phi(w_i x),    d theta/dt = - n grad L           (Mei et al. 2018; Chizat, Bach 2018)

    and similarly for deeper networks (Bordelon, Pehlevan 2022).  Training changes these a_i and w_i by order one.
    Up to constants, this is `SpectralMuP` in other variables (`minintk.spec.abc_parametrization`).

    >>> MeanField().row(Role("weight", "output"), fan_in=100, fan_out=1, sigma=1.0)
    Row(multiplier=0.01, std=1.0, lr=100.0, draw='normal', adam=1.0)
    """

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        output, (end, branch) = role.place == "output", role.depth
        if role.kind == "bias":
            return Row(sigma * end, 1.0, lr=1.0 if output else float(fan_out), adam=branch)
        if output:
            return Row(sigma / fan_in * end, 1.0, lr=float(fan_in), adam=branch)
        return Row(sigma / sqrt(fan_in) * end, 1.0, lr=float(fan_out), adam=branch / sqrt(fan_in))
