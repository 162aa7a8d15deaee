"""Describe a network as data (a spec): a tree of frozen dataclasses.

A spec contains no arrays and draws no random numbers.  It can be hashed, compared, printed and pickled.
`minintk.Network` is the finite network of a spec, and `analytic.kernel` computes the infinite-width kernels.

>>> from minintk.spec import ReLU
>>> spec = Sequential(Dense(512, w_std=2**0.5, b_std=0.1), ReLU(), Dense(1))
>>> spec.layers[0].width
512
>>> spec == Sequential(Dense(512, w_std=2**0.5, b_std=0.1), ReLU(), Dense(1))
True
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self

from minintk.spec.checks import Padding, Size, check_arguments, check_axes, check_scales, check_windows
from minintk.validate import number, whole

__all__ = [
    "Activation", "AvgPool", "BatchNorm", "Conv1d", "Conv2d", "Convolution", "Dense", "Flatten", "GlobalAvgPool",
    "Identity", "Layer", "LayerNorm", "MaxPool", "Padding", "Pooling", "Residual", "Sequential", "Several", "Size",
]  # fmt: skip


class Layer:
    """Base class of all layers in a spec.

    To add a layer, write a frozen dataclass that inherits from this class, and register

        minintk.spec.shapes.out_shape    (layer, shape) -> the shape of one example after the layer
        minintk.layers.contract.bind     the layer's outputs and derivatives in a finite network
        analytic.lower                   the layer's infinite-width rule, if one exists
        minintk.models.taylor.expand     the layer's power series, if `mn.Taylor` should support the layer

    The page "Extending" in the documentation gives an example of a user-defined layer and its tests.

    weights : True if the layer itself owns parameters.
    couples : True if an example's output depends on the other examples of its batch, as in BatchNorm.
    """

    __slots__ = ()
    weights: ClassVar[bool] = False
    couples: ClassVar[bool] = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Raise TypeError for arguments that the layer does not accept.  The message lists the accepted arguments."""
        check_arguments(cls, args, kwargs)
        return super().__new__(cls)

    @property
    def inside(self) -> tuple[Layer, ...]:
        """Return the layers that this layer contains or consists of, or () if there are none."""
        return ()


class Activation(Layer):
    """Base class of the pointwise activations phi.

    To add an activation, write a frozen dataclass that inherits from this class, and register phi and phi' with
    `minintk.layers.activation.pointwise`.  Its infinite-width kernels are computed by quadrature, or from the formulas
    in `Pointwise.dual`.  `mn.Taylor` also needs phi's power series (`minintk.models.power_series.expanded`).
    """

    __slots__ = ()


# ---------------------------------------------------------------------------------------- containers


@dataclass(frozen=True, init=False, repr=False)
class Several(Layer):
    """Base class of containers with any number of layers: `Sequential` and the branches of `minintk.spec.structure`.

    A parameter tensor is named after the position of its layer, as in ``"0.W"`` or ``"2.b"``.  In a nested container,
    positions and names of branches are joined by dots, as in ``"1.branch.0.W"``.  If one layer object is used at
    two positions, each position has its own weights.

    Raises TypeError if an argument is not a layer, e.g. if it is a class or a list of layers.
    """

    layers: tuple[Layer, ...]

    def __init__(self, *layers: Layer) -> None:
        kind = type(self).__name__
        for position, layer in enumerate(layers):
            if not isinstance(layer, Layer):
                hint = f"; write {layer.__name__}(...)" if isinstance(layer, type) and issubclass(layer, Layer) else ""
                hint = f"; write {kind}(*layers)" if isinstance(layer, (list, tuple)) else hint
                raise TypeError(f"{kind} expects layers, got {layer!r} at position {position}{hint}")
        object.__setattr__(self, "layers", tuple(layers))

    @property
    def inside(self) -> tuple[Layer, ...]:
        return self.layers

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.layers))})"

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)


class Sequential(Several):
    """Apply layers one after another: y = l_k(... l_2(l_1(x))).

    >>> from minintk.spec import ReLU
    >>> spec = Sequential(Dense(512), ReLU(), Dense(10))
    >>> len(spec), [type(layer).__name__ for layer in spec]
    (3, ['Dense', 'ReLU', 'Dense'])
    """


@dataclass(frozen=True)
class Identity(Activation):
    """phi(x) = x."""


@dataclass(frozen=True)
class Residual(Layer):
    """y = branch(x) + shortcut(x).

    Given an input shape, `out_shape` raises ValueError if the output shapes of branch and shortcut differ.

    >>> from minintk.spec import ReLU
    >>> block = Residual(Sequential(ReLU(), Dense(64)), shortcut=Dense(64))       # a projection, where widths change
    >>> block.shortcut
    Dense(width=64, w_std=1.0, b_std=0.0, b_init='normal')
    """

    branch: Layer
    shortcut: Layer = Identity()

    def __post_init__(self) -> None:
        for name in ("branch", "shortcut"):
            if not isinstance(getattr(self, name), Layer):
                raise TypeError(f"Residual({name}=...) expects a layer, got {getattr(self, name)!r}")

    @property
    def inside(self) -> tuple[Layer, ...]:
        return self.branch, self.shortcut


# ------------------------------------------------------------------------------- layers with parameters


@dataclass(frozen=True)
class Dense(Layer):
    """z = w_std / sqrt(fan_in) * x W + b_std * b   (in the NTK parametrization).

    width : the number of outputs.
    w_std : sigma_w, the scale of the weights.
    b_std : sigma_b, the scale of the bias; 0 means no bias.
    b_init : if "normal", b is drawn at initialisation.  If "zeros", b is initially 0 and is trained with scale b_std
        (Geiger et al. 2020).  Such a bias does not change the NNGP kernel, but adds b_std^2 to this layer's NTK.

    x : (N, fan_in) -> (N, width).  Raises ValueError for a width < 1, w_std <= 0 or b_std < 0.

    >>> Dense(512, w_std=2**0.5, b_std=0.1).width
    512
    >>> Dense(0)
    Traceback (most recent call last):
    ValueError: Dense(width=...) expects a whole number >= 1, got 0
    """

    weights = True
    width: int
    _: KW_ONLY
    w_std: float = 1.0
    b_std: float = 0.0
    b_init: Literal["normal", "zeros"] = "normal"

    def __post_init__(self) -> None:
        whole("Dense(width=...)", self.width)
        check_scales("Dense", self.w_std, self.b_std, self.b_init)


@dataclass(frozen=True)
class Convolution(Layer):
    """Base class of `Conv2d` and `Conv1d`.  axes : the accepted numbers of spatial axes."""

    weights = True
    axes: ClassVar[tuple[int, ...]]
    channels: int
    kernel_size: Size = 3
    _: KW_ONLY
    stride: Size = 1
    padding: Padding = "same"
    w_std: float = 1.0
    b_std: float = 0.0
    b_init: Literal["normal", "zeros"] = "normal"

    def __post_init__(self) -> None:
        name = type(self).__name__
        whole(f"{name}(channels=...)", self.channels)
        check_windows(self, "kernel_size")
        check_scales(name, self.w_std, self.b_std, self.b_init)


@dataclass(frozen=True)
class Conv2d(Convolution):
    """z[p] = w_std / sqrt(fan_in) * sum_s x[stride p + s] W[s] + b_std * b  at every pixel p, with fan_in = K K C_in.

    Images are channels-last, x : (N, H, W, C_in);  W : (K, K, C_in, channels) for kernel_size = K.

    channels : the number of output channels.
    kernel_size, stride : a number, or a pair (along H, along W).
    padding : "valid" adds nothing.  "same" adds equally many zeros before and after the image, or one more after it, so
        that the output has ceil(H / stride) rows.  "circular" repeats the image instead of adding zeros.
        Otherwise, padding is the number of zeros: one number, one per axis, or (before, after) per axis.
    w_std, b_std, b_init : as for `Dense`.  Sums at the edges, which have fewer terms, are not rescaled.

    (N, H, W, C_in) -> (N, H', W', channels).  Raises ValueError for sizes below 1 and for any other padding.

    >>> from minintk.spec.shapes import out_shape
    >>> out_shape(Conv2d(16, 3), (32, 32, 3)), out_shape(Conv2d(16, 5, stride=2, padding="valid"), (32, 32, 3))
    ((32, 32, 16), (14, 14, 16))
    """

    axes = (2,)


@dataclass(frozen=True)
class Conv1d(Convolution):
    """Convolve sequences x : (N, L, C_in) with W : (K, C_in, channels).  The arguments are those of `Conv2d`.

    >>> from minintk.spec.shapes import out_shape
    >>> out_shape(Conv1d(16, 3, stride=2), (100, 4))
    (50, 16)
    """

    axes = (1,)


# --------------------------------------------------------------------------- layers without parameters


@dataclass(frozen=True)
class Flatten(Layer):
    """y = x with each example's axes merged into one, in row-major order."""


@dataclass(frozen=True)
class Pooling(Layer):
    """Base class of `AvgPool` and `MaxPool`."""

    axes = (1, 2)
    window: Size = 2
    _: KW_ONLY
    stride: Size | None = None
    padding: Padding = "valid"

    def __post_init__(self) -> None:
        check_windows(self, "window")


@dataclass(frozen=True)
class AvgPool(Pooling):
    """y[p] = 1/|window| * sum_s x[stride p + s].  By default, |window| is the full size, even at the edges.

    window, stride, padding : as kernel_size, stride and padding of `Conv2d`.  By default, stride = window, and padding
    is "valid".  normalize_edges : if True, divide by the number of pixels in the window that lie inside the image.
    """

    _: KW_ONLY
    normalize_edges: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.normalize_edges, bool):
            raise TypeError(f"AvgPool(normalize_edges=...) expects True or False, got {self.normalize_edges!r}")


@dataclass(frozen=True)
class MaxPool(Pooling):
    """y[p] = max_s x[stride p + s] over pixels inside the image (finite networks only).

    In a tie, only the first pixel (row-major) has a nonzero derivative.  window, stride, padding : as for `AvgPool`.
    """


@dataclass(frozen=True)
class GlobalAvgPool(Layer):
    """y = mean of x over all pixels, (N, H, W, C) -> (N, C)."""


@dataclass(frozen=True)
class LayerNorm(Layer):
    """y = (x - mean) / sqrt(variance + eps), by default over the last axis (features, or channels at each pixel).

    axes : the axes to normalise over, counted from the end, e.g. (-3, -2, -1) for a whole image (H, W, C).
        With axes = (-3, -2), over pixels only, the layer does not have an infinite-width kernel.

    Raises ValueError unless axes are distinct negative whole numbers and every example has these axes.
    """

    _: KW_ONLY
    eps: float = 1e-5
    axes: int | tuple[int, ...] = -1

    def __post_init__(self) -> None:
        number("LayerNorm(eps=...)", self.eps, zero=True)
        check_axes("LayerNorm", self.over)

    @property
    def over(self) -> tuple[int, ...]:
        """Return the axes as a tuple."""
        return self.axes if isinstance(self.axes, tuple) else (self.axes,)


@dataclass(frozen=True)
class BatchNorm(Layer):
    """y = (x - mean) / sqrt(variance + eps), per channel over the batch and all pixels (finite networks only).

    Training uses the statistics of the batch.  `Network.calibrate` freezes the statistics for evaluation and kernels.
    """

    couples = True
    _: KW_ONLY
    eps: float = 1e-5

    def __post_init__(self) -> None:
        number("BatchNorm(eps=...)", self.eps)
