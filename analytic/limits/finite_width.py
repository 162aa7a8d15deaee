"""Compute exact moments of the output and the tangent kernel at one input, for finite networks at initialisation.

Biases are 0.  sigma_l : w_std of layer l.  phi(z) = d(z) z with gates d set by z's sign (ReLU, LeakyReLU, Abs, none).
z^{l+1} = s_l W^l h^l with W ~ N(0, 1), s_l^2 = sigma_l^2 / n_l, h^l = d^l z^l, and delta^l = df/dz^l for one output f:

    hatTheta(x, x) = sum_{l = 0 ... L} s_l^2 |h^l|^2 |delta^{l+1}|^2

Fair coin flips, independent of the weights, can replace the gates without changing hatTheta's law.  Negating a neuron's
row of W^l and column of W^{l+1} flips its gate, but leaves each term the same function of weights and gates.  The
result is a product of Gaussian matrices, averaged one at a time.  With m2 = E d^2, m4 = E d^4 (ReLU: 1/2, 1/2),

    E |h^{l+1}|^4 = s_l^4 (3 n m4 + n (n-1) m2^2) E |h^l|^4,      n = n_{l+1},      E |delta^l|^4 likewise, downwards
    p = E (tr P P')^2,  q = E tr (P P')^2   of P = d^m s W ... s W d^{l+1}, from p = n m4 + n (n-1) m2^2, q = n m4:
        p <- s^4 (n m4 (p + 2 q) + n (n-1) m2^2 p),      q <- s^4 (n m4 (p + 2 q) + n (n-1) m2^2 q)

    E hatTheta   = |x|^2/d (L + 1) prod sigma_l^2 prod m2     = Theta(x, x), at every width
    E hatTheta^2 = sum_l s_l^4 E|h^l|^4 E|delta^{l+1}|^4 + 2 sum_{l < m} s_l^4 s_m^4 E|h^l|^4 p_lm E|delta^{m+1}|^4

For one hidden ReLU layer, n Var / Theta^2 = 3.  For deep networks, see `depth_over_width`.  (Hanin and Nica 2020 prove
that E hatTheta^2 / Theta^2 grows exponentially in depth / width; the recursion for p and q is derived here.)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, inf, isnan, nan, prod

from analytic.limits.linear_problem import hidden_layers
from minintk import spec as s
from minintk.spec.shapes import UnsupportedLayer


@dataclass(frozen=True)
class FiniteWidth:
    """Moments over initialisations for |x|^2 = d; nngp and ntk are proportional to |x|^2, variance to |x|^4.

    nngp : E f^2, equal to the NNGP kernel at every width.  kurtosis : E f^4 / (3 (E f^2)^2), 1 for a Gaussian.
    ntk : E hatTheta, equal to the NTK at every width.  variance : Var hatTheta.
    """

    nngp: float
    kurtosis: float
    ntk: float
    variance: float

    @property
    def relative(self) -> float:
        """Return Var hatTheta / (E hatTheta)^2."""
        return self.variance / self.ntk**2


@dataclass(frozen=True)
class _Hidden:
    """A hidden layer: its width, and the moments m2, m4 of its gates."""

    n: int
    m2: float
    m4: float

    @property
    def square(self) -> float:
        """Return E (sum_i d_i^2)^2 = n m4 + n (n-1) m2^2."""
        return self.n * self.m4 + self.n * (self.n - 1) * self.m2**2

    @property
    def fourth(self) -> float:
        """Return E (sum_i d_i^2 g_i^2)^2 = 3 n m4 + n (n-1) m2^2 for g ~ N(0, 1)."""
        return self.square + 2 * self.n * self.m4


SLOPES: dict[type[s.Layer], float] = {s.Identity: 1.0, s.ReLU: 0.0, s.Abs: -1.0}
"""{activation: its gate d for negative z}.  The gate is 1 for positive z."""


def finite_width(spec: s.Layer) -> FiniteWidth:
    """Return the exact moments of a network without biases, with ReLU, LeakyReLU, Abs or no activations.

    The moments are for the spec's widths, one input, one output c (hatTheta_cc), and the NTK parametrization with unit
    scales.  Raises UnsupportedLayer for biases or other layers, and ValueError without a hidden or a final Dense layer.

    >>> import minintk as mn
    >>> for n in (10, 1000):
    ...     found = finite_width(mn.Sequential(mn.Dense(n, w_std=2**0.5), mn.ReLU(), mn.Dense(1)))
    ...     print(round(found.ntk, 12), round(n * found.relative, 12))
    2.0 3.0
    2.0 3.0
    """
    dense, phi = hidden_layers(spec)
    slopes = [act.slope if isinstance(act, s.LeakyReLU) else SLOPES.get(type(act), nan) for act in phi]
    if any(layer.b_std > 0 for layer in dense) or any(map(isnan, slopes)):
        raise UnsupportedLayer(
            "finite_width is exact for Dense layers with b_std = 0 and ReLU, LeakyReLU, Abs or nothing between them, "
            f"got {spec!r}"
        )
    sigma2, L = [layer.w_std**2 for layer in dense], len(phi)
    hidden = [_Hidden(int(layer.width), (1 + a**2) / 2, (1 + a**4) / 2) for layer, a in zip(dense, slopes)]
    s2 = [sigma2[0], *(a / layer.n for a, layer in zip(sigma2[1:], hidden, strict=True))]  # |x|^2 / d = 1
    up, down = [1.0], [1.0]
    for at, layer in enumerate(hidden):
        up.append(s2[at] ** 2 * layer.fourth * up[-1])
    for at, layer in reversed(list(enumerate(hidden, start=1))):
        down.insert(0, s2[at] ** 2 * layer.fourth * down[0])  # down[l] = E |delta^{l+1}|^4
    mean = prod(sigma2) * prod(layer.m2 for layer in hidden)
    second = sum(s2[at] ** 2 * up[at] * down[at] for at in range(L + 1))
    for low in range(L):
        first = hidden[low]
        p, q = first.square, first.n * first.m4
        for high in range(low + 1, L + 1):
            second += 2 * (s2[low] * s2[high]) ** 2 * up[low] * p * down[high]
            if high < L:
                layer, scale = hidden[high], s2[high] ** 2
                own, others = layer.n * layer.m4 * (p + 2 * q), layer.n * (layer.n - 1) * layer.m2**2
                p, q = scale * (own + others * p), scale * (own + others * q)
    ntk = (L + 1) * mean
    return FiniteWidth(mean, s2[L] ** 2 * up[L] / mean**2, ntk, second - ntk**2)


def depth_over_width(beta: float, gate: float = 2.0) -> float:
    """Return E hatTheta^2 / (E hatTheta)^2 of a deep and wide network with equal widths and beta = depth / width.

        e^(c beta) (1/3 + 4/3 (1/z - (1 - e^-z) / z^2)),    c = 3 gate - 1,    z = 3 gate beta

    This is the limit of 1 + `FiniteWidth.relative` as depth and width go to infinity together.  gate : m4 / m2^2.  ReLU
    has gate 2 and growth e^(5 beta); linear networks have gate 1 and growth e^(2 beta).  Raises ValueError if beta < 0,
    if gate < 1, or if the result overflows.

    >>> [round(depth_over_width(beta), 3) for beta in (0.0, 0.1, 1.0)]
    [1.0, 1.458, 76.969]
    """
    if isinstance(beta, str) or isinstance(gate, str) or not (0 <= beta < inf and 1 <= gate < inf):
        raise ValueError(f"depth_over_width expects beta >= 0 and gate = m4/m2^2 >= 1, got {beta!r}, {gate!r}")
    if (exponent := (3 * gate - 1) * beta) > 709:
        raise ValueError(
            f"depth_over_width expects beta up to {709 / (3 * gate - 1):.0f}, got {beta!r}: e^{exponent:.0f} overflows"
        )
    z = 3 * gate * beta
    average = (1 / z + expm1(-z) / z**2) if z > 1e-4 else 0.5 - z / 6  # int_0^1 (1 - w) e^(-z w) dw
    return exp(exponent) * (1 + 4 * average) / 3
