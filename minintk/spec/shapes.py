"""Compute the shape of an example at each layer, and find the first and the last weights of a network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from math import prod
from typing import Literal

from minintk import spec as s

Place = Literal["input", "hidden", "output"]
Shape = tuple[int, ...]


class UnsupportedLayer(TypeError):
    """Raised for an unsupported layer.  The message gives the reason and a remedy."""


@dataclass(frozen=True)
class Site:
    """The position of a layer in a network.

    shape : the layer's input shape for one example, ``(d,)``, ``(L, C)`` or ``(H, W, C)``.
    first : True if no weights precede the layer.  last : True if no weights follow it.
    inputs : True if df/dx is needed, so that the backward sweep continues past the first weights.
    residuals : the number of residual branches in the network or, inside `Branches`, in the branch; 0 if not counted.
    branches : `residuals` inside a Residual's branch, else 1.  end : True if no weights follow in that branch.
    """

    shape: Shape
    first: bool = True
    last: bool = True
    inputs: bool = False
    residuals: int = 0
    branches: int = 1
    end: bool = False

    @property
    def branch(self) -> Site:
        """Return the site of the branch, for a Residual at this site."""
        return replace(self, branches=max(1, self.residuals), end=True)

    @property
    def place(self) -> Place:
        """Return 'input' if no weights precede the layer, else 'output' if none follow it, else 'hidden'."""
        return "input" if self.first else "output" if self.last else "hidden"


@singledispatch
def out_shape(layer: s.Layer, shape: Shape) -> Shape:
    """Return the output shape of `layer` for one example.  Raise ValueError if the layer does not accept `shape`."""
    raise UnsupportedLayer(f"{type(layer).__name__} has no output shape: register minintk.spec.shapes.out_shape for it")


def has_weights(layer: s.Layer) -> bool:
    """True if the layer or any layer inside it owns parameters."""
    return layer.weights or any(map(has_weights, layer.inside))


def count_residuals(layer: s.Layer) -> int:
    """Count the residual branches of the layer and of the layers inside it, excluding those inside `Branches`."""
    inside = () if isinstance(layer, s.Branches) else layer.inside
    return isinstance(layer, s.Residual) + sum(map(count_residuals, inside))


def couples(layer: s.Layer) -> bool:
    """True if an example's output depends on other examples of its batch, in this layer or in a layer inside it."""
    return layer.couples or any(map(couples, layer.inside))


def kept_shapes(layer: s.Layer, shape: Shape) -> Iterator[Shape]:
    """Yield the shapes of the arrays that `linearize` keeps per example, for the layer and each layer inside it."""
    if isinstance(layer, s.Sequential):
        for inner in layer.layers:
            yield from kept_shapes(inner, shape)
            shape = out_shape(inner, shape)
    elif isinstance(layer, s.Residual | s.Branches):
        for inner in layer.inside:
            yield from kept_shapes(inner, shape)
        if isinstance(layer, s.Product | s.Concat):
            yield out_shape(layer, shape)
    elif isinstance(layer, s.GlobalSelfAttention):
        *read, out = (out_shape(part, shape) for part in layer.parts(shape))
        L = prod(shape[:-1])  # keys, queries, values and their concatenation, then A and A v
        yield from (*read, *read, (int(layer.heads), L, L), read[-1], out)
    elif not isinstance(layer, (s.Flatten, s.Identity)):
        yield out_shape(layer, shape)


def sites(layers: Sequence[s.Layer], site: Site) -> Iterator[tuple[s.Layer, Site]]:
    """Yield each layer of a chain with its Site, given the Site of the chain."""
    weighted = [has_weights(layer) for layer in layers]
    shape, residuals = site.shape, site.residuals or sum(map(count_residuals, layers))
    for i, layer in enumerate(layers):
        first, ends = site.first and not any(weighted[:i]), not any(weighted[i + 1 :])
        here = replace(site, shape=shape, first=first, last=site.last and ends, residuals=residuals)
        yield layer, replace(here, end=site.end and ends)
        shape = out_shape(layer, shape)


@out_shape.register
def _(layer: s.Dense, shape: Shape) -> Shape:
    if len(shape) != 1:
        raise ValueError(
            f"{layer!r} expects examples of shape (d,), got {shape}: put mn.Flatten() before it, or flatten the data "
            "(the shape of one example is x.shape[1:])"
        )
    return (int(layer.width),)


@out_shape.register
def _(layer: s.LayerNorm, shape: Shape) -> Shape:
    if min(layer.over) < -len(shape):
        raise ValueError(f"{layer!r} expects examples with axes {layer.over}, got examples of shape {shape}")
    return shape


@out_shape.register(s.Activation)
@out_shape.register(s.BatchNorm)
@out_shape.register(s.Dropout)
def _(layer: s.Layer, shape: Shape) -> Shape:
    return shape


@out_shape.register
def _(layer: s.Flatten, shape: Shape) -> Shape:
    return (prod(shape),)


@out_shape.register
def _(layer: s.Sequential, shape: Shape) -> Shape:
    for inner in layer.layers:
        shape = out_shape(inner, shape)
    return shape


@out_shape.register(s.Residual)
@out_shape.register(s.Branches)
def _(layer: s.Residual | s.Branches, shape: Shape) -> Shape:
    found, joined = [out_shape(inner, shape) for inner in layer.inside], isinstance(layer, s.Concat)
    if len({one[:-1] if joined else one for one in found}) > 1:
        raise ValueError(
            f"{type(layer).__name__} expects branches that give {'pixels of one number' if joined else 'one shape'}, "
            f"but for inputs of shape {shape} they give {', '.join(map(str, found))}: make the widths equal, or end "
            f"others in weights, as Residual(branch, shortcut=mn.Dense({found[0][-1]}))"
        )
    return (*found[0][:-1], sum(one[-1] for one in found)) if joined else found[0]
