"""Define the recursion on images, for covariances of all pairs of pixels or only of pairs at the same position.

    convolution   K'(p, p') = w^2 / |s| sum_s K(S p + s, S p' + s) + beta^2     Theta' likewise, + ratio K' + rest
    pooling       K'(p, p') = 1 / |s|^2 sum_{s, s'} K(S p + s, S p' + s')       Theta' likewise
    flattening    K'        = 1 / |p| sum_p K(p, p)                             Theta' likewise
    activation    pixel pair by pixel pair, as for vectors                      S : stride,  s, s' : offsets in a window

Outside the image, K is 0 or, with circular padding, periodic (Novak et al., Garriga-Alonso et al., Arora et al., all
2019).  Convolutions shift both pixels together, so Flatten without pooling needs only p = p'.  w, beta : see `Affine`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from analytic.recursion.rules import Affine, Fork, Masks, Normalise, ProductOfParts, ResidualSum, affine, lower
from analytic.recursion.state import Dual, Law, Pairs, Program, RowState, Step
from minintk import spec as s
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, Site, UnsupportedLayer
from minintk.spec.windows import Axis, axes


class ImageStep(Step):
    """Base class of steps that need the pixels; `analytic.images.engine` applies these steps."""

    def rows(self, rows: RowState) -> tuple[RowState, Any]:
        raise TypeError(f"{type(self).__name__} acts on images, not on vectors")

    def pairs(self, pairs: Pairs, row: Any) -> None:
        raise TypeError(f"{type(self).__name__} acts on images, not on vectors")


@dataclass(frozen=True)
class Window(ImageStep):
    """Convolve: average over both windows, shifted together, then apply the affine step of a Dense layer."""

    axes: tuple[Axis, Axis]
    affine: Affine

    def law(self, law: Law) -> Law:
        return self.affine.law(law)


class Mixing(ImageStep):
    """Base class of steps that sum pairs of different pixels, and may first need each image's kernel with itself."""

    @property
    @abstractmethod
    def recorded(self) -> tuple[int, int]:
        """Return the shape of the array recorded for each image with itself."""


@dataclass(frozen=True)
class Pool(Mixing):
    """Average over each window, or over the whole image if global.   normalised : omit pixels outside the image."""

    axes: tuple[Axis, Axis]
    normalised: bool

    @property
    def grid(self) -> tuple[int, int]:
        """Return (H, W) after the step."""
        return self.axes[0].out, self.axes[1].out

    @property
    def recorded(self) -> tuple[int, int]:
        """Return the shape of D and Theta of pooled pixels with themselves."""
        return self.grid

    def law(self, law: Law) -> Law:
        """Return `law` unchanged: in each channel, sums of Gaussians are Gaussian."""
        return law


@dataclass(frozen=True)
class Flat(ImageStep):
    """Flatten pixels to features, which averages the kernel over pairs of pixels at the same position."""

    def law(self, law: Law) -> Law:
        """Return a law that is not Gaussian: variances differ between pixels, so no single dual applies."""
        return replace(law, gaussian=False, alike=False)


def trivial(axis: Axis) -> bool:
    """Return True if each output's window contains only the pixel at its own position."""
    return axis.kernel == 1 and axis.stride == 1 and axis.out == axis.size


def grid(shape: Shape) -> tuple[int, int]:
    """Return (H, W) of examples (H, W, C).  A sequence (L, C) is one row of pixels, and a vector (d,) is one pixel."""
    return {1: (1, 1), 2: (1, shape[0]), 3: shape[:2]}[len(shape)]  # type: ignore[return-value]


def both_axes(found: tuple[Axis, ...]) -> tuple[Axis, Axis]:
    """Return the two axes of a window.  A sequence is an image with one row."""
    return (found[0], found[1]) if len(found) == 2 else (Axis(1, 1), found[0])


def all_steps(program: Program) -> Iterator[Step]:
    """Yield all steps except sums, including the steps inside sums and products."""
    for step in program:
        if isinstance(step, Fork):
            yield from all_steps(step.branch + step.shortcut)
        if not isinstance(step, ResidualSum):
            yield step


def depth(program: Program) -> int:
    """Return the nesting depth of sums and products, which is 0 without any."""
    sums = [step for step in program if isinstance(step, Fork)]
    return max((1 + max(depth(one.branch), depth(one.shortcut)) for one in sums), default=0)


def needs_images(program: Program) -> bool:
    """Return True if any step needs the pixels."""
    return any(isinstance(step, ImageStep) for step in all_steps(program))


def mixes_pixels(program: Program) -> bool:
    """Return True if any step averages over pairs of different pixels."""
    return any(isinstance(step, Mixing) for step in all_steps(program))


def is_nonlinear(program: Program) -> bool:
    """Return True if any step is not linear."""
    kinds = Dual | Normalise | ProductOfParts | Mixing
    return any(isinstance(step, kinds) and not isinstance(step, Pool) for step in all_steps(program))


def has_masks(program: Program) -> bool:
    """Return True if Dropout makes an example's kernel with itself differ from that with an equal example."""
    return any(isinstance(step, Masks) for step in all_steps(program))


@lower.register
def _(layer: s.Convolution, site: Site, parametrization: Parametrization) -> Program:
    found = axes(layer, site.shape)
    fan_in = prod(a.kernel for a in found) * site.shape[-1]
    return (Window(both_axes(found), affine(layer, fan_in, int(layer.channels), site, parametrization)),)


def pool(found: tuple[Axis, Axis], *, normalised: bool = False) -> Program:
    """Return the program of a pooling layer, which is empty if each window is the pixel at its own position."""
    return () if all(map(trivial, found)) else (Pool(found, normalised),)


@lower.register
def _(layer: s.AvgPool, site: Site, parametrization: Parametrization) -> Program:
    return pool(both_axes(axes(layer, site.shape)), normalised=layer.normalize_edges)


@lower.register
def _(layer: s.GlobalAvgPool, site: Site, parametrization: Parametrization) -> Program:
    H, W = grid(site.shape)
    return pool((Axis(H, H), Axis(W, W)))


@lower.register
def _(layer: s.Flatten, site: Site, parametrization: Parametrization) -> Program:
    return (Flat(),) if len(site.shape) > 1 else ()


@lower.register
def _(layer: s.MaxPool, site: Site, parametrization: Parametrization) -> Program:
    raise UnsupportedLayer(
        "MaxPool has no infinite-width kernel in closed form: the maximum of correlated Gaussians has no formula for "
        "its covariance; use mn.AvgPool, or measure the finite network's kernel, minintk.ntk(...)"
    )


@lower.register
def _(layer: s.BatchNorm, site: Site, parametrization: Parametrization) -> Program:
    raise UnsupportedLayer(
        "BatchNorm has no infinite-width kernel here: its statistics tie every example to the whole batch, so k(x, x') "
        "is not a function of x and x' alone; use mn.LayerNorm, or measure the finite network's kernel with frozen "
        "statistics, minintk.ntk(...)"
    )
