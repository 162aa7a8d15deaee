"""Define pointwise activations phi.  See `minintk.layers.activation` for phi' and `analytic.recursion` for kernels.

Apart from `Hermite` and `Rbf`, phi is not scaled to E phi(z)^2 = 1 for z ~ N(0, 1).  For ReLU, use w_std = sqrt(2).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt

from minintk.spec.checks import check_numbers
from minintk.spec.layers import Activation
from minintk.validate import number, whole

__all__ = [
    "GELU", "ABRelu", "Abs", "Cos", "Erf", "Exp", "Gaussian", "Hermite", "LeakyReLU", "Monomial", "Polynomial", "Rbf",
    "ReLU", "RectifiedMonomial", "Sigmoid", "Sign", "Sin", "Softplus", "Swish", "Tanh",
]  # fmt: skip


class Numbered(Activation):
    """Base class of activations whose arguments are 0 or of size 1e-100 to 1e100.  Raises ValueError if phi = 0."""

    __slots__ = ()

    def __post_init__(self) -> None:
        check_numbers(self)
        match self:
            case ABRelu(0.0, 0.0) | Sin(0.0) | Sin(_, 0.0, 0.0) | Exp(0.0) | Gaussian(0.0) | Softplus(_, 0.0):
                raise ValueError(f"{self!r} is 0 everywhere: a network ends there; give it a factor that is not 0")


@dataclass(frozen=True)
class ReLU(Activation):
    """phi(x) = max(x, 0); phi'(0) = 0.  The factor sqrt(2) is not included: set it in w_std."""


@dataclass(frozen=True)
class LeakyReLU(Numbered):
    """phi(x) = x for x > 0, slope * x otherwise; phi'(0) = slope."""

    slope: float = 0.01


@dataclass(frozen=True)
class ABRelu(Numbered):
    """phi(x) = b x for x > 0, a x otherwise; phi'(0) = a.  Raises ValueError for a = b = 0."""

    a: float
    b: float


@dataclass(frozen=True)
class Abs(Activation):
    """phi(x) = |x|; phi'(0) = 0."""


@dataclass(frozen=True)
class RectifiedMonomial(Activation):
    """phi(x) = max(x, 0)^degree; phi'(0) = 0.  degree : a whole number from 1 (ReLU) to 1000.

    The kernels of degrees 1 and 2 have closed forms.  Those of higher degrees are computed by quadrature.

    >>> RectifiedMonomial(0)
    Traceback (most recent call last):
    ValueError: RectifiedMonomial(degree=...) expects a whole number from 1 to 1000, got 0
    """

    degree: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", whole("RectifiedMonomial(degree=...)", self.degree, 1, 1000))


@dataclass(frozen=True)
class Sign(Activation):
    """phi(x) = sign(x) in {-1, 0, 1}; phi' = 0 in finite networks.  Its NNGP kernel exists.  Its NTK is inf at x = x'.

    A small angle between inputs is mapped to a multiple of its square root, which amplifies earlier rounding errors.
    """


@dataclass(frozen=True)
class Erf(Activation):
    """phi(x) = erf(x) = 2/sqrt(pi) * integral_0^x exp(-s^2) ds."""


@dataclass(frozen=True)
class GELU(Activation):
    """phi(x) = x Phi(x), where Phi is the distribution function of N(0, 1) (exact GELU, no tanh approximation)."""


@dataclass(frozen=True)
class Swish(Numbered):
    """phi(x) = x / (1 + exp(-beta x)); beta = 1 gives PyTorch's SiLU.  Its kernels are computed by quadrature."""

    beta: float = 1.0


@dataclass(frozen=True)
class Sin(Numbered):
    """phi(x) = a sin(b x + c)."""

    a: float = 1.0
    b: float = 1.0
    c: float = 0.0


def Cos(a: float = 1.0, b: float = 1.0, c: float = 0.0) -> Sin:
    """Return phi(x) = a cos(b x + c) as a sine with phase c + pi/2.

    >>> Cos()
    Sin(a=1.0, b=1.0, c=1.5707963267948966)
    """
    return Sin(a, b, number("Cos(c=...)", c, negative=True) + pi / 2)


def Rbf(gamma: float = 1.0) -> Sin:
    """Return phi(x) = sqrt(2) sin(sqrt(2 gamma) x + pi/4), which has the NNGP kernel exp(-gamma E (u - u')^2).

    u, u' : Gaussian.  After Dense, it is exp(-gamma w_std^2 |x - x'|^2 / d).  Raises ValueError for gamma <= 0.

    >>> Rbf(2.0).b
    2.0
    """
    return Sin(sqrt(2), sqrt(2 * number("Rbf(gamma=...)", gamma)), pi / 4)


@dataclass(frozen=True)
class Exp(Numbered):
    """phi(x) = a exp(b x)."""

    a: float = 1.0
    b: float = 1.0


@dataclass(frozen=True)
class Gaussian(Numbered):
    """phi(x) = a exp(b x^2).  For b > 0, its kernels exist only for variances q < 1 / (4 b)."""

    a: float = 1.0
    b: float = -1.0


@dataclass(frozen=True)
class Polynomial(Activation):
    """phi(x) = coef[0] + coef[1] x + coef[2] x^2 + ...  `Monomial` is a special case.

    Raises ValueError unless coef is a tuple of finite numbers, not all 0.  Its kernels have finite Hermite series.
    """

    coef: tuple[float, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.coef, tuple) or not self.coef:
            raise ValueError(f"Polynomial(coef=...) expects a tuple of numbers, got {self.coef!r}")
        coef = tuple(number(f"Polynomial(coef[{n}]=...)", c, negative=True) for n, c in enumerate(self.coef))
        if not any(coef):
            raise ValueError(f"{self!r} is 0 everywhere: a network ends there")
        object.__setattr__(self, "coef", coef)


def Monomial(degree: int) -> Polynomial:
    """Return phi(x) = x^degree for a degree from 0 to 1000.

    >>> Monomial(2)
    Polynomial(coef=(0.0, 0.0, 1.0))
    """
    whole("Monomial(degree=...)", degree, 0, 1000)
    return Polynomial((0.0,) * degree + (1.0,))


@dataclass(frozen=True)
class Hermite(Activation):
    """phi = h_degree, the Hermite polynomial with E h_degree(z)^2 = 1 for z ~ N(0, 1) and degree from 0 to 100.

    At variances q = q' = 1 and correlation c, its NNGP kernel is c^degree.  A recurrence computes the values, because
    a `Polynomial` would lose three digits at degree 10 and nine at degree 30.  Raises ValueError for other degrees.
    """

    degree: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", whole("Hermite(degree=...)", self.degree, 0, 100))


@dataclass(frozen=True)
class Tanh(Activation):
    """phi(x) = tanh(x)."""


@dataclass(frozen=True)
class Sigmoid(Activation):
    """phi(x) = 1 / (1 + exp(-x))."""


@dataclass(frozen=True)
class Softplus(Numbered):
    """phi(x) = scale / beta * log(1 + exp(beta x)).  beta = 5 and scale = 1.404383 give E phi(z)^2 = 1, z ~ N(0, 1)."""

    beta: float = 1.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        number("Softplus(beta=...)", self.beta)
