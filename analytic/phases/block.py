"""Find the block of layers that a deep network repeats, and express it as steps of the kernel recursion.

    Dense(512), Tanh(), Dense(512), Tanh(), Dense(10)      repeats   Tanh(), Dense(512)

A block ends with its last weights, so its state describes pre-activations.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from analytic.images.rules import has_masks, needs_images
from analytic.kernels import every
from analytic.recursion.rules import lower
from analytic.recursion.state import Law, Program, run_law
from minintk import spec as s
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Site, UnsupportedLayer, count_residuals

WIDTHS = "width", "channels"


def repeated(spec: s.Layer) -> s.Sequential:
    """Return the block that a network repeats; if nothing repeats, return the spec as one block of a deeper network.

    Widths can differ between blocks.  Of several runs of equal blocks, choose the longest and, within it, the shortest
    block.  Without repetition, omit a last layer that equals the first except for its width, as in Dense, Tanh, Dense.

    >>> repeated(s.Sequential(s.Dense(9), s.Tanh(), s.Dense(8), s.Tanh(), s.Dense(1)))
    Sequential(Tanh(), Dense(width=8, w_std=1.0, b_std=0.0, b_init='normal'))
    """
    layers = flat(spec)
    kinds = [unsized(layer) for layer in layers]
    best, chosen = 0, layers[:-1] if len(layers) > 2 and kinds[0] == kinds[-1] else layers
    for period in range(1, len(layers) // 2 + 1):
        for start in range(len(layers) - 2 * period + 1):
            run = period
            while start + run < len(layers) and kinds[start + run] == kinds[start + run - period]:
                run += 1
            if run >= 2 * period and run > best:
                best, chosen = run, layers[start + period : start + 2 * period]
    ends = [i for i, layer in enumerate(chosen) if layer.weights or isinstance(layer, s.GlobalSelfAttention)]
    first = ends[-1] + 1 if ends else 0
    return s.Sequential(*chosen[first:], *chosen[:first])


def flat(layer: s.Layer) -> list[s.Layer]:
    """Return the layers of a chain, including those of nested chains."""
    return [each for inner in layer for each in flat(inner)] if isinstance(layer, s.Sequential) else [layer]


def unsized(layer: s.Layer) -> s.Layer:
    """Return the layer with its own and its inner widths set to 1, so that layers of different widths compare equal."""
    if isinstance(layer, s.Several):
        return type(layer)(*map(unsized, layer))
    here: Any = layer
    of = {each.name: getattr(layer, each.name) for each in fields(here) if each.init}
    inner = {name: unsized(value) for name, value in of.items() if isinstance(value, s.Layer)}
    return replace(here, **inner, **{name: 1 for name in WIDTHS if name in of})


def steps(block: s.Sequential, of: s.Layer, parametrization: Parametrization) -> Program:
    """Return a block's steps of the recursion; raise UnsupportedLayer, with the reason, if blocks cannot be stacked.

    of : the whole network; some parametrizations need its number of residual branches.
    """
    vector = on_vectors(block)
    changed = vector != block
    widths = [int(layer.width) for layer in every(vector) if isinstance(layer, s.Dense)]
    site = Site((widths[-1] if widths else 1,), first=False, last=False, residuals=sum(map(count_residuals, flat(of))))
    program = lower(vector, site, parametrization)
    if any(isinstance(layer, s.Sign) for layer in every(vector)):
        raise UnsupportedLayer(
            "Sign has an infinite chi_1, from its jump, and no depth scales: take mn.Erf() with a large w_std before it"
        )
    if needs_images(program) or (changed and has_masks(program)):
        raise UnsupportedLayer(
            f"{block!r} has no phase here: its pixels or positions do not stay equal, so their angles are a state of "
            "their own; leave Dropout out, or take layers on vectors"
        )
    law = Law(gaussian=True, fresh=True, alike=True)
    run_law(program, run_law(program, law))
    return program


def on_vectors(layer: s.Layer) -> s.Layer:
    """Return the equivalent layer for vectors, if an example's pixels or positions are equal and remain so.

    Raises UnsupportedLayer if a layer distinguishes pixels or positions, as zero padding and some attention layers do.
    """
    match layer:
        case s.Convolution(kernel_size=1 | (1, 1)) | s.Convolution(padding="circular"):
            return s.Dense(layer.channels, w_std=layer.w_std, b_std=layer.b_std, b_init=layer.b_init)
        case s.GlobalAvgPool() | s.MaskedAvgPool() | s.Flatten() | s.AvgPool(padding="valid" | "circular"):
            return s.Identity()
        case s.Convolution() | s.AvgPool(normalize_edges=False):
            raise UnsupportedLayer(
                f"{layer!r} pads with zeros or leaves the edge out, so pixels at the edge have a variance of their "
                'own: take padding="circular", which is what the middle of a large image sees'
            )
        case s.GlobalSelfAttention():
            if layer.scaling != "linear" or layer.zeta != "softmax" or layer.masked:
                raise UnsupportedLayer(
                    f"{layer!r} weighs positions by sums that depend on their number or are random: between equal "
                    'positions only scaling="linear" with the softmax, which takes their mean, has a phase'
                )
            out = s.Dense(layer.channels, w_std=layer.w_std, b_std=layer.b_std)
            return s.Sequential(s.Dense(layer.heads * layer.sizes[1]), out)
        case s.AvgPool():
            return s.Identity()
        case s.LayerNorm() if -1 in layer.over:
            return s.LayerNorm(eps=layer.eps)
        case s.Several():
            return type(layer)(*(on_vectors(inner) for inner in layer))
        case s.Residual():
            return s.Residual(on_vectors(layer.branch), on_vectors(layer.shortcut))
    return layer
