"""A layer's step for one pair of pixels, in C: one kernel on a GPU, in place of some twenty NumPy calls.

The formulas are those of `analytic.images.activations`, entry by entry; `T` is the precision.  Every kernel reads all
its inputs before it stores a result, so results may overwrite inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from minintk.arrays import elementwise

OPPOSITE_ROUNDINGS = 8.0
"""If X = U (1 + cos a) is less than so many roundings of A = U (1 - cos a), pixels are opposite, a = pi, X = 0."""


class StepSource(NamedTuple):
    """The C source of one step: d from D and numbers of the pixels; theta from Theta and more such numbers."""

    name: str
    inputs: str
    body: str
    d: str
    tangent_inputs: str
    tangent: str
    theta: str

    def compiled(self, xp: Any, *, tangent: bool) -> Callable[..., Any] | None:
        """kernel(*inputs, [*tangent inputs,] d[, theta]); inputs may broadcast, or be Python numbers.

        None if the library of `xp` does not compile kernels.
        """
        if not tangent:
            return elementwise(xp, self.name, self.inputs, "T d", f"{self.body} d = {self.d};")
        inputs, name = f"{self.inputs}, {self.tangent_inputs}", f"{self.name}_tangent"
        body = f"{self.body} {self.tangent} T new_theta = {self.theta}; d = {self.d}; theta = new_theta;"
        return elementwise(xp, name, inputs, "T d, T theta", body)


KINKED = StepSource(
    name="kinked",
    inputs="T D, T half, T half2, T c, T scale",
    body="""
    T g = half - half2, two = 4 * half * half2;  /* 2 U */
    T A = D - g * g;
    A = A < 0 ? -A : A;
    A = A < two * (1 - (sizeof(T) == 4 ? (T)9.5367431640625e-7 : (T)1.7763568394002505e-15)) ? A : two;  /* 8 eps */
    T X = two - A, K = X - A;  /* K is 2 K */
    T a = sqrt(A), x = sqrt(X), h = atan2(a, x);  /* half the angle, near pi / 2 too */
    """,
    d="(D * c + (K * h - a * x)) * scale",
    tangent_inputs="T Theta, T ratio, T rest, T zero, T zero2, T slope, T slope2",
    tangent="T factor = zero + zero2 > 0 ? slope * slope2 : h * (-2 * scale) + c * scale;",
    theta="(Theta + K * ratio + 2 * rest) * factor",
)
"""alpha x + beta |x|: `apply` of Homogeneous in `analytic.images.activations`, with half = sqrt(q / 2 unit)."""

ARCSINE = StepSource(
    name="arcsine",
    inputs="T D, T root, T root2, T x, T x2, T y, T y2, T unit",
    body="""
    T g = root - root2, U = root * root2;
    T A = D * unit - g * g / 2;
    A = A > 0 ? A : 0;
    A = A < 2 * U ? A : 2 * U;
    T kappa = 1 / (1 + 2 * root * root), kappa2 = 1 / (1 + 2 * root2 * root2), kk = sqrt(kappa * kappa2);
    T square = kappa + 2 * root * root * kappa * kappa2;  /* 1 - u u' */
    T cos1 = sqrt(square), cosz = sqrt(square + 4 * kappa * kappa2 * A * (2 * U - A));
    T turn = 2 * atan(2 * A * kk / (cos1 + cosz));  /* z_1 - z */
    T e = sin((x - x2) / 2), over = sin((x + x2) / 2) * cos1 + sin((y + y2) / 2) * (2 * U * kk);
    T mismatch = asin(over > 0 ? e / over * e : 0);
    """,
    d="(turn + mismatch) * (T)0.63661977236758134308",  # 2 / pi
    tangent_inputs="T Theta, T ratio, T rest",
    tangent="T pending = 2 * ratio * (U - A) + 2 * rest * unit;",
    theta="(Theta * unit + pending) * (T)1.27323954473516268615 * kk / cosz",  # 4 / pi
)
"""erf: with u = 2q / (1 + 2q) = sin x, kappa = 1 - u, y = pi/2 - x, and z, z_1 as in `duals.Erf`:

    D' = (2/pi) [(z_1 - z) + (m - z_1)],   m = (x + x') / 2       Theta' = (4/pi) sqrt(kappa kappa') / cos z  Theta
    tan((z_1 - z)/2) = 2 A sqrt(kappa kappa') / (cos z_1 + cos z)
    sin(m - z_1) sin(m + z_1) = sin((x - x')/2)^2                              as sin(z_1)^2 = sin x sin x'
"""
