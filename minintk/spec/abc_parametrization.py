"""Compute how the outputs and features of a network scale with its width n in training (abc-parametrizations).

    z = n^-a x w,    w ~ N(0, n^-2b),    rate of w: lr n^-c                       (Yang, Hu 2021, with a, b, c per role)

Constants that do not depend on n are ignored.  The network has at least two hidden layers, with pre-activations h_l,
and is trained for a fixed number of steps.

    g = min(a_out + b_out, 2 a_out + c_out)         dL/dh ~ n^-g         Adam: min(a_out + b_out, a_out + c_out)
    r = min over l of  g + 2 a_l + c_l - 1 + [l is the input]            Adam: a_l + c_l - 1 + [l is the input]

Here |dh_l| ~ n^-r is the largest change of the features.  The update of the output weights changes f by n^-u with
u = 2 a_out + c_out - 1 (Adam: a_out + c_out - 1).  The change of features changes f by n^-v, v = a_out + b_out + r - 1.

    stable              a + b = 0 at the input, 1/2 at hidden layers, >= 1/2 at the output; r >= 0, u >= 0, v >= 0
    trivial             stable, and f does not move: u > 0 and v > 0
    feature learning    stable, not trivial, and r = 0: features move by order one
    kernel              stable, not trivial, and r > 0: f moves, features do not, the tangent kernel is constant
    maximal             stable, every term of r is 0, and u = 0: every layer learns (Yang, Hu 2021, section 5)

Yang and Hu prove this for gradient descent with one c for all layers.  The formulas for one c per layer and for Adam
follow by the same power counting.  For Adam, updates have size n^-c for any gradient (Yang, Littwin 2023).

Replacing a, b, c in any layer by a + s, b - s, c - 2 s (Adam: c - s) changes neither the function nor its training.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan, log, sqrt
from typing import Literal

from minintk.spec.parametrization import Parametrization, Role, Row, Rule
from minintk.spec.shapes import Place
from minintk.validate import real

Triple = tuple[float, ...]
"""One exponent each for the input, hidden and output layers."""
Regime = Literal["unstable", "trivial", "kernel", "feature learning"]

PLACES: tuple[Place, Place, Place] = ("input", "hidden", "output")
ROUNDING = 1e-9
"""Exponents that differ by less than this number are considered equal."""


@dataclass(frozen=True)
class ABC(Parametrization):
    """The parametrization with exponents a, b and c, each of which is a tuple (input, hidden, output).

    rule : the optimiser for which c is given, "sgd" or "adam".  With "adam", there are no rates for gradient descent.
    The width n is the fan-out of the input layer, and the fan-in (channels for a convolution) of other layers.
    With sigma = w_std, weights have std = sigma n^-b / sqrt(fan_in / n), but std = sigma n^-b / sqrt(fan_in) at the
    input layer.  Biases scale with n like input weights, but the output bias is independent of n.

    >>> ABC(a=(-0.5, 0, 0.5), b=(0.5, 0.5, 0.5), c=(0, 0, 0)).regime             # muP, as Yang and Hu print it
    'feature learning'
    >>> ABC(a=(0, 0.5, 0.5), b=(0, 0, 0), c=(0, 0, 0)).regime                    # NTK
    'kernel'
    >>> ABC(a=(0, 0, 0), b=(0, 0.5, 0.5), c=(0, 0, 0)).regime                    # standard; at rates lr / n:
    'unstable'
    >>> ABC(a=(0, 0, 0), b=(0, 0.5, 0.5), c=(1, 1, 1)).regime
    'kernel'
    """

    a: Triple
    b: Triple
    c: Triple
    rule: Rule = "sgd"

    def __post_init__(self) -> None:
        for name in "abc":
            value = getattr(self, name)
            if not isinstance(value, tuple) or len(value) != 3 or any(isnan(real(x)) for x in value):
                raise ValueError(f"ABC({name}=...) expects a tuple (input, hidden, output) of exponents, got {value!r}")
        if self.rule not in ("sgd", "adam"):
            raise ValueError(f"ABC(rule=...) expects 'sgd' or 'adam', got {self.rule!r}")

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        if role.kind == "bias" and role.place == "output":
            return self._row(1.0, sigma, 1.0)
        bias = role.kind == "bias"
        at = 0 if bias else PLACES.index(role.place)
        n = fan_out if bias or role.place == "input" else fan_in // role.window
        constant = 1 if bias else fan_in if role.place == "input" else fan_in / n
        return self._row(_power(n, self.a[at]), sigma / sqrt(constant) * _power(n, self.b[at]), _power(n, self.c[at]))

    def _row(self, multiplier: float, std: float, rate: float) -> Row:
        """Return the row, with `rate` as the learning rate for the optimiser `rule`."""
        return Row(multiplier, std, lr=rate) if self.rule == "sgd" else Row(multiplier, std, lr=None, adam=rate)

    def shifted(self, *by: float) -> ABC:
        """Return the equivalent ABC with a + s, b - s, c - 2 s (Adam: c - s).  by : one s, or one s per layer role.

        With the same random draws and training, the two networks compute the same function at every step, up to
        rounding.  This also holds with weight decay, and with Adam if its eps is negligible.

        >>> ntk = ABC(a=(0, 0.5, 0.5), b=(0, 0, 0), c=(0, 0, 0))
        >>> ntk.shifted(0, -0.5, -0.5)
        ABC(a=(0, 0.0, 0.0), b=(0, 0.5, 0.5), c=(0, 1.0, 1.0), rule='sgd')
        """
        if len(by) not in (1, 3):
            raise ValueError(f"shifted expects one shift, or three for (input, hidden, output), got {len(by)}")
        if any(isnan(real(y)) for y in by):
            raise ValueError(f"shifted expects numbers, got {by!r}")
        s = by if len(by) == 3 else by * 3
        twice = 2 if self.rule == "sgd" else 1
        a, b = tuple(x + y for x, y in zip(self.a, s)), tuple(x - y for x, y in zip(self.b, s))
        return ABC(a, b, tuple(x - twice * y for x, y in zip(self.c, s)), self.rule)

    def equivalent(self, other: ABC) -> bool:
        """Return True if `other` can be obtained from this parametrization by `shifted`.

        >>> ABC((0, 0.5, 1), (0, 0, 0), (-1, -1, -1)).equivalent(ABC((-0.5, 0, 0.5), (0.5, 0.5, 0.5), (0, 0, 0)))
        True
        """
        if not isinstance(other, ABC):
            raise TypeError(f"equivalent expects an mn.ABC, such as mn.exponents(mn.NTK()), got {other!r}")
        moved = self.shifted(*(y - x for x, y in zip(self.a, other.a)))
        return self.rule == other.rule and all(map(_same, (*moved.b, *moved.c), (*other.b, *other.c)))

    def _moves(self, g: float) -> tuple[float, float]:
        """Return r of the input layer and r of a hidden layer, for dL/dh ~ n^-g."""
        (a1, a2, _), (c1, c2, _) = self.a, self.c
        if self.rule == "adam":
            return a1 + c1, a2 + c2 - 1
        return g + 2 * a1 + c1, g + 2 * a2 + c2 - 1

    @property
    def _u(self) -> float:
        """Return u, where the update of the output weights changes f by n^-u."""
        return (2 if self.rule == "sgd" else 1) * self.a[2] + self.c[2] - 1

    @property
    def r(self) -> float:
        """Return the exponent r: training changes features by n^-r."""
        return min(self._moves(min(self.a[2] + self.b[2], self._u + 1)))

    @property
    def stable(self) -> bool:
        """True if, at initialisation and in training, features are of order one and outputs bounded as n grows."""
        first, hidden, output = (a + b for a, b in zip(self.a, self.b))
        begins = _same(first, 0) and _same(hidden, 0.5) and output > 0.5 - ROUNDING
        return begins and min(self.r, self._u, output + self.r - 1) > -ROUNDING

    @property
    def regime(self) -> Regime:
        """Return 'unstable', 'trivial', 'kernel' or 'feature learning'."""
        if not self.stable:
            return "unstable"
        if min(self._u, self.a[2] + self.b[2] + self.r - 1) > ROUNDING:
            return "trivial"
        return "feature learning" if _same(self.r, 0) else "kernel"

    @property
    def maximal(self) -> bool:
        """True if every layer learns, i.e. the network is stable, r = 0 in each layer, and u = 0.

        >>> frozen = ABC(a=(0, 0, 0), b=(0, 0.5, 1), c=(0, 2, 1), rule="adam")         # hidden rates too small by 1/n
        >>> frozen.regime, frozen.maximal
        ('feature learning', False)
        """
        moves = self._moves(min(self.a[2] + self.b[2], self._u + 1))
        return self.stable and all(_same(exponent, 0) for exponent in (*moves, self._u))


def exponents(parametrization: Parametrization, rule: Rule = "sgd") -> ABC:
    """Compute a, b and c of any parametrization from its rows at two large widths.

    rule : the optimiser whose learning rates are used.  Raises ValueError if a multiplier or a rate is zero.

    >>> from minintk.spec.parametrization import NTK, MeanField, PyTorch, SpectralMuP, Standard
    >>> [exponents(p).regime for p in (NTK(), SpectralMuP(), MeanField())]
    ['kernel', 'feature learning', 'feature learning']
    >>> [exponents(p).regime for p in (Standard(), PyTorch())]
    ['unstable', 'unstable']
    >>> exponents(SpectralMuP(), "adam")
    ABC(a=(0.0, 0.0, 0.0), b=(0.0, 0.5, 1.0), c=(0.0, 1.0, 1.0), rule='adam')
    """
    if not isinstance(parametrization, Parametrization):
        raise TypeError(f"parametrization expects an object such as mn.NTK(), got {parametrization!r}")
    n, N = 2**20, 2**24
    shapes = {"input": ((1, n), (1, N)), "hidden": ((n, n), (N, N)), "output": ((n, 1), (N, 1))}
    a, b, c = [], [], []
    for place in PLACES:
        one, two = (parametrization.row(Role("weight", place), i, o, 1.0) for i, o in shapes[place])
        if not min(one.multiplier, two.multiplier, one.rate(rule), two.rate(rule)) > 0:
            raise ValueError(f"{parametrization!r} has a multiplier or a rate that is not a power of the width: {two}")
        a.append(_exponent(one.multiplier, two.multiplier, N / n))
        b.append(_exponent(one.std, two.std, N / n))
        c.append(_exponent(one.rate(rule), two.rate(rule), N / n))
    return ABC(tuple(a), tuple(b), tuple(c), rule)


def _exponent(one: float, two: float, ratio: float) -> float:
    """Return p such that two = one * ratio^-p, or inf if either is not positive."""
    return round(-log(two / one) / log(ratio), 9) + 0.0 if one > 0 and two > 0 else inf


def _power(n: int, exponent: float) -> float:
    """Return n^-exponent, or 0 for exponent = inf.  The result is 1 at n = 1 for any finite exponent."""
    return 0.0 if exponent == inf else float(n) ** -exponent


def _same(x: float, y: float) -> bool:
    return x == y or abs(x - y) < ROUNDING
