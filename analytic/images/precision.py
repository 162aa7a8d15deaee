"""Choose the scale and the precision of images, and check their range.

Fields contain D = (q + q') / 2 - K, so K has the rounding error of the larger variance.  If the root mean squares of
two images have the ratio R, the error relative to sqrt(K(x, x) K(x', x')) is about R times the precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analytic.images.rules import Flat, Pool, Window, all_steps
from analytic.recursion.duals import Homogeneous
from analytic.recursion.range_checks import SMALLEST_VARIANCE, check_step
from analytic.recursion.requests import Examples
from analytic.recursion.rules import Affine, Masks, ProductOfParts
from analytic.recursion.state import Program
from analytic.recursion.unit_rows import flat, square_norms
from minintk.arrays import Array

FLOAT32_MAX_RATIO = 1e4
"""Largest ratio of two images' variances for fields in float32."""

FLOAT64_MAX_RATIO = 1e16
"""Largest ratio of variances for fields in float64; it corresponds to R = 1e8 and an error of 1e-8."""

SMALLEST_OF_IMAGES = 1e-270
"""Smallest variance, unless images are scaled first.  Smaller variances are too close to the number that replaces 0."""

FLOAT32_MAX_VARIANCE = 1e14
"""Largest variance for fields in float32; its inverse is the smallest.  Squares could leave the range otherwise."""


def affine_steps(program: Program) -> Iterator[Affine]:
    """Yield the affine part of every step with weights or biases."""
    for step in all_steps(program):
        if isinstance(step, Window | Affine):
            yield step.affine if isinstance(step, Window) else step


def scale_free(program: Program) -> bool:
    """Return True if the steps' kinds and the lack of biases ensure f(s x) = s f(x) for s > 0."""
    known = all(isinstance(step, Window | Affine | Pool | Flat | Homogeneous | Masks) for step in all_steps(program))
    return known and all(affine.beta2 <= 0 and affine.rest == 0 for affine in affine_steps(program))


def first_variances(program: Program, inputs: Examples) -> Array:
    """Return the images' mean squares plus the first layer's beta2 / w2; raise ValueError if a sum is out of range."""
    affine = next(affine_steps(program), None)
    bias = 0.0 if affine is None else affine.beta2 / affine.w2
    parts = tuple(flat(x) for x in inputs.x)
    q = bias + square_norms(inputs.xp, parts) / parts[0].shape[1]
    if q.size:
        check_step(inputs, q, q, q, "", SMALLEST_VARIANCE if scale_free(program) else SMALLEST_OF_IMAGES)
    return q


def field_precision(program: Program, inputs: Examples) -> Any:
    """Return the precision of fields: that of the images, or float64 if float32 cannot hold their variances.

    Unless `scale_free`, raises ValueError, naming two images whose variances have a ratio above FLOAT64_MAX_RATIO.
    """
    xp, q = inputs.xp, first_variances(program, inputs)
    if scale_free(program) or not bool(xp.any(q > 0)):
        return inputs.dtype
    later = next((a.beta2 / a.w2 for a in affine_steps(program) if a.beta2 > 0), 0.0)
    q = xp.where(q > 0, q, min(later, float(xp.max(q))))  # black images have the first bias's variance
    small, large = int(xp.argmin(xp.where(q > 0, q, xp.inf))), int(xp.argmax(q))
    low, high = float(q[small]), float(q[large])
    if high > FLOAT64_MAX_RATIO * low:
        raise ValueError(
            f"{inputs.called(small)} and {inputs.called(large)} have root mean squares of {low**0.5:.3g} and "
            f"{high**0.5:.3g}, biases included: beyond a ratio of {FLOAT64_MAX_RATIO**0.5:.0e} kernels of images lose "
            "more than half of their digits; scale the images alike, or compute their kernels apart"
        )
    products = any(isinstance(step, ProductOfParts) for step in all_steps(program))
    most = FLOAT32_MAX_VARIANCE ** (1 / 3 if products else 1)  # linear attention multiplies three variances
    fits = high <= FLOAT32_MAX_RATIO * low and 1 / most <= low and high <= most
    return inputs.dtype if fits else xp.float64


def holds_opposites(x: Array) -> bool:
    """Return True if x_i = -x_j != 0 for some pair of these NumPy images.

    >>> import numpy as np
    >>> holds_opposites(np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])), holds_opposites(np.array([[0.0], [2.0]]))
    (True, False)
    """
    found = {image.tobytes() for image in x + 0.0}  # + 0.0 turns -0.0 into 0.0
    return any(image.any() and image.tobytes() in found for image in 0.0 - x)


def check_entries(inputs: Examples, i: slice, j: slice, values: Array, F: int, what: str = "kernel") -> None:
    """Raise ValueError, naming the pair, if an entry of block (i, j) overflows the dtype.   F : rows per image."""
    xp, largest = inputs.xp, float(inputs.xp.finfo(inputs.dtype).max)
    sizes = xp.abs(values)
    if not float(xp.max(sizes)) <= largest:
        n, m = values.shape[-2:]
        a, b = (k // F for k in divmod(int(xp.argmax(sizes)) % (n * m), m))
        one = inputs.called(i.start + a)
        two = inputs.called(j.start + b + (0 if inputs.symmetric else inputs.shape[0]))
        raise ValueError(
            f"{one} and {two} have a {what} of {float(xp.max(sizes)):.3g}, and {inputs.dtype} ends at {largest:.3g}: "
            f"scale the inputs down{', or take float64' if largest < 1e300 else ''}"
        )
