"""Define hypothesis strategies for specs, parametrizations and networks at random points.

hypothesis draws seeds instead of arrays, so an example consists of a few small choices that hypothesis can shrink."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

import minintk as mn
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, out_shape

Array = mn.Array


PARAMETRIZATIONS = (mn.NTK(), mn.Standard(), mn.PyTorch(), mn.SpectralMuP(), mn.MeanField())

ACTIVATIONS: tuple[mn.spec.Activation, ...] = (
    mn.ReLU(),
    mn.LeakyReLU(0.3),
    mn.Abs(),
    mn.Erf(),
    mn.GELU(),
    mn.Sin(),
    mn.Tanh(),
    mn.Sigmoid(),
    mn.Softplus(),
    mn.Softplus(beta=5.0, scale=1.404383),
    mn.Cos(1.3, 0.8, 0.2),
    mn.Identity(),
)
SMOOTH = tuple(a for a in ACTIVATIONS if not isinstance(a, (mn.ReLU, mn.LeakyReLU, mn.Abs)))
MORE = (
    mn.ABRelu(-0.4, 0.8), mn.RectifiedMonomial(2), mn.Rbf(0.6), mn.Exp(0.7, 0.5), mn.Gaussian(1.2, -0.4),
    mn.Polynomial((0.3, -0.8, 0.2, 0.1)), mn.Hermite(4), mn.Swish(1.5),
)  # fmt: skip
"""Further activations, which are not in ACTIVATIONS."""


# ----------------------------------------------------------------------------------------------- specs


@st.composite
def dense(draw: st.DrawFn, width: int | None = None, largest: int = 6) -> mn.Dense:
    """Draw a Dense layer with any width up to `largest`, one of three scales, and any kind of bias."""
    return mn.Dense(
        draw(st.integers(1, largest)) if width is None else width,
        w_std=draw(st.sampled_from((0.5, 1.0, 2**0.5))),
        b_std=draw(st.sampled_from((0.0, 0.1, 1.0))),
        b_init=draw(st.sampled_from(("normal", "zeros"))),
    )


@st.composite
def chains(
    draw: st.DrawFn, shape: Shape, depth: int = 2, activations: tuple[mn.spec.Activation, ...] = ACTIVATIONS
) -> mn.Sequential:
    """Draw a chain of layers for inputs of shape `shape`. Containers are nested at most `depth` deep."""
    layers: list[mn.spec.Layer] = []
    for _ in range(draw(st.integers(1, 3))):
        kinds = ["activation"]
        kinds += ["dense", "dense"] if len(shape) == 1 else ["flatten"]
        kinds += ["nested", "residual", "projected"] if depth and len(shape) == 1 else []
        match draw(st.sampled_from(kinds)):
            case "dense":
                layer: mn.spec.Layer = draw(dense())
            case "flatten":
                layer = mn.Flatten()
            case "nested":
                layer = draw(chains(shape, depth - 1, activations))
            case "residual":
                branch = draw(chains(shape, depth - 1, activations))
                layer = mn.Residual(mn.Sequential(*branch, draw(dense(width=shape[0]))))
            case "projected":
                branch = draw(chains(shape, depth - 1, activations))
                (width,) = out_shape(branch, shape)
                layer = mn.Residual(branch, shortcut=draw(dense(width=width)))
            case _:
                layer = draw(st.sampled_from(activations))
        layers.append(layer)
        shape = out_shape(layer, shape)
    return mn.Sequential(*layers)


@st.composite
def networks(
    draw: st.DrawFn,
    activations: tuple[mn.spec.Activation, ...] = ACTIVATIONS,
    parametrizations: tuple[Parametrization, ...] = PARAMETRIZATIONS,
) -> mn.Network:
    """Draw a network with a random spec that has weights, for vectors or images, in one of `parametrizations`."""
    shape: Shape = draw(st.sampled_from(((1,), (3,), (2, 2, 2))))
    body = draw(chains(shape, activations=activations))
    flat = [] if len(out_shape(body, shape)) == 1 else [mn.Flatten()]
    head: list[mn.spec.Layer] = [draw(dense(largest=3))]
    head += draw(st.lists(st.sampled_from(activations), max_size=1))
    return mn.Network(mn.Sequential(*body, *flat, *head), shape, draw(st.sampled_from(parametrizations)))


# -------------------------------------------------------------------------------- convolutional specs

PADDINGS: tuple[Any, ...] = ("same", "valid", "circular", 1, 2)


@st.composite
def conv(draw: st.DrawFn, shape: Shape, channels: int | None = None, keeps: bool = False) -> mn.spec.Layer:
    """Draw a convolution for images or sequences of shape `shape`. Padding that does not fit is replaced by "same"."""
    dims = len(shape) - 1
    kernel: Any = tuple(draw(st.integers(1, 4)) for _ in range(dims))
    paddings: tuple[Any, ...] = ("same", "circular") if keeps else (*PADDINGS, ((0, 2),) * dims)
    options: dict[str, Any] = {
        "stride": 1 if keeps else tuple(draw(st.integers(1, 3)) for _ in range(dims)),
        "padding": draw(st.sampled_from(paddings)),
        "w_std": draw(st.sampled_from((0.5, 2**0.5))),
        "b_std": draw(st.sampled_from((0.0, 0.3))),
        "b_init": draw(st.sampled_from(("normal", "zeros"))),
    }
    channels = draw(st.integers(1, 3)) if channels is None else channels
    if dims == 1 and not keeps:
        options["stride"] = options["stride"][0]
    layer: Any = mn.Conv1d(channels, kernel[0], **options) if dims == 1 else mn.Conv2d(channels, kernel, **options)
    return fitting(layer, shape)


@st.composite
def pool(draw: st.DrawFn, shape: Shape) -> mn.spec.Layer:
    """Draw a pooling layer for images or sequences of shape `shape`."""
    dims = len(shape) - 1
    kind: Any = draw(st.sampled_from((mn.AvgPool, mn.MaxPool)))
    window: Any = tuple(draw(st.integers(1, 3)) for _ in range(dims))
    stride = draw(st.none() | st.integers(1, 3))
    padding = draw(
        st.sampled_from(("same", "valid", "circular", 1) if min(window) > 1 else ("same", "valid", "circular"))
    )
    edges = {"normalize_edges": draw(st.booleans())} if kind is mn.AvgPool else {}
    return fitting(kind(window if dims == 2 else window[0], stride=stride, padding=padding, **edges), shape)


def fitting(layer: Any, shape: Shape) -> mn.spec.Layer:
    """Return the layer, with padding "same" if another padding does not fit or gives a window outside the image."""
    found: mn.spec.Layer = layer
    try:
        mn.Network(mn.Sequential(layer, mn.Flatten()), shape)
    except ValueError:
        found = replace(layer, padding="same")
    return found


@st.composite
def convolutional(
    draw: st.DrawFn,
    activations: tuple[mn.spec.Activation, ...] = ACTIVATIONS,
    parametrizations: tuple[Parametrization, ...] = PARAMETRIZATIONS,
    normalised: bool = False,
) -> mn.Network:
    """Draw a network on images or sequences of several shapes, with a BatchNorm layer if `normalised`."""
    shape: Shape = draw(st.sampled_from(((1, 1, 1), (3, 4, 1), (4, 3, 2), (2, 5, 3), (1,) * 2, (5, 2))))
    start, layers = shape, list[mn.spec.Layer]()
    for _ in range(draw(st.integers(1, 4))):
        match draw(st.sampled_from(("conv", "conv", "pool", "residual", "projected", "norm", "activation"))):
            case "conv":
                layer: mn.spec.Layer = draw(conv(shape))
            case "pool":
                layer = draw(pool(shape))
            case "residual":
                inner: list[mn.spec.Layer] = [
                    draw(st.sampled_from(activations)),
                    draw(conv(shape, shape[-1], keeps=True)),
                ]
                layer = mn.Residual(mn.Sequential(*inner))
            case "projected":
                branch = draw(conv(shape, 2, keeps=True))
                one = mn.Conv1d(2, 1) if len(shape) == 2 else mn.Conv2d(2, 1)
                layer = mn.Residual(branch, shortcut=one)
            case "norm":
                axes: Any = st.sampled_from(((-1,), (-2, -1), tuple(range(-len(shape), 0))))
                # If the one channel were normalised over pixels, its mean over pixels would be 0 up to rounding.
                layer = mn.LayerNorm(eps=0.1, axes=draw(axes) if shape[-1] > 1 else (-1,))
            case _:
                layer = draw(st.sampled_from(activations))
        layers.append(layer)
        shape = out_shape(layer, shape)
    if normalised:
        layers.insert(draw(st.integers(0, len(layers))), mn.BatchNorm(eps=0.1))
    layers.append(draw(st.sampled_from((mn.Flatten(), mn.GlobalAvgPool()))))
    return mn.Network(mn.Sequential(*layers, draw(dense(largest=3))), start, draw(st.sampled_from(parametrizations)))


# ------------------------------------------------------------------------------- networks at a point


@dataclass(frozen=True, repr=False)
class Case:
    """A network, parameters in general position, a batch, targets, and a generator for further draws."""

    net: mn.Network
    theta: Array
    x: Array
    y: Array
    rng: np.random.Generator

    def __repr__(self) -> str:
        return f"Case({self.net!r}, theta {self.theta.shape} {self.theta.dtype}, x {self.x.shape})"


@st.composite
def cases(
    draw: st.DrawFn,
    nets: st.SearchStrategy[mn.Network] | None = None,
    ensembles: tuple[int | None, ...] = (None, 1, 3),
    dtype: Any = np.float64,
) -> Case:
    """Draw a network at a random point.

    Every tensor, including a zero-initialised bias, differs from its initial value.
    """
    net = draw(networks() if nets is None else nets)
    N = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    theta = net.init(rng, ensemble=draw(st.sampled_from(ensembles)), dtype=dtype)
    theta += (0.3 * rng.standard_normal(theta.shape)).astype(dtype)
    x = rng.standard_normal((N, *net.input_shape)).astype(dtype)
    y = rng.standard_normal((N, net.outputs)).astype(dtype)
    return Case(net, theta, x, y, rng)
