"""Compute the pixels that a convolution or a pooling layer reads, one axis of the image at a time.

    output pixel p reads  x[stride p - before + s],  s = 0 ... kernel - 1

Pixels outside the image are zero (MaxPool ignores them) or, with circular padding, repeat the image.

>>> rows = axis("Conv2d", 28, kernel=5, stride=2, padding="same")
>>> rows, rows.out
(Axis(size=28, kernel=5, stride=2, before=1, after=2, circular=False), 14)
"""

from __future__ import annotations

from dataclasses import dataclass

from minintk import spec as s
from minintk.spec.shapes import Shape, out_shape

Windowed = s.Convolution | s.Pooling


@dataclass(frozen=True)
class Axis:
    """One image axis of `size` pixels, read by windows of `kernel` pixels; `before` and `after` are its padding."""

    size: int
    kernel: int
    stride: int = 1
    before: int = 0
    after: int = 0
    circular: bool = False

    @property
    def out(self) -> int:
        """Return the number of windows."""
        return (self.before + self.size + self.after - self.kernel) // self.stride + 1

    @property
    def inside(self) -> list[int]:
        """Return, for each window, the number of pixels inside the image (`kernel` if the padding is circular)."""
        starts = range(-self.before, self.stride * self.out - self.before, self.stride)
        ends = ((max(p, 0), min(p + self.kernel, self.size)) for p in starts)
        return [self.kernel if self.circular else max(0, end - start) for start, end in ends]

    def along(self, k: int) -> slice:
        """Return the slice of the padded axis that selects position stride p + k for every window p."""
        return slice(k, k + self.stride * (self.out - 1) + 1, self.stride)

    @property
    def copies(self) -> list[tuple[slice, slice]]:
        """Return pairs of slices (padded axis, image): one for the image and one for each circular repetition."""
        before, after = (-(-self.before // self.size), -(-self.after // self.size)) if self.circular else (0, 0)
        found = []
        for start in range(self.before - before * self.size, self.before + after * self.size + 1, self.size):
            low, high = max(start, 0), min(start + self.size, self.before + self.size + self.after)
            found.append((slice(low, high), slice(low - start, high - start)))
        return found


def axis(layer: str, size: int, kernel: int, stride: int, padding: str | tuple[int, int]) -> Axis:
    """Return the Axis for a padding given by name or as (before, after).  Raise ValueError if no window fits."""
    if isinstance(padding, str):
        missing = 0 if padding == "valid" else max((-(-size // stride) - 1) * stride + kernel - size, 0)
        before, after = missing // 2, missing - missing // 2
    else:
        before, after = padding
    found = Axis(size, kernel, stride, before, after, padding == "circular")
    if found.out < 1:
        raise ValueError(
            f"{layer}: a window of {kernel} pixels does not fit into an image of {size} pixels"
            f"{f' and {before + after} of padding' if before + after else ''}: "
            "take a smaller window, padding='same', or larger images"
        )
    return found


def axes(layer: Windowed, shape: Shape) -> tuple[Axis, ...]:
    """Return the spatial axes of `layer` on images of `shape`, (H, W, C) or (L, C)."""
    name, ndim = type(layer).__name__, len(shape) - 1
    if ndim not in layer.axes:
        images, sequences = "images (H, W, C)", "sequences (L, C)"
        want = " or ".join([images] * (2 in layer.axes) + [sequences] * (1 in layer.axes))
        raise ValueError(f"{layer!r} expects {want}, channels last, got examples of shape {shape}")
    window = layer.window if isinstance(layer, s.Pooling) else layer.kernel_size
    kernel = _each(layer, window, ndim)
    stride = kernel if layer.stride is None else _each(layer, layer.stride, ndim)
    padding = _paddings(layer, layer.padding, ndim)
    found = tuple(axis(name, *four) for four in zip(shape[:-1], kernel, stride, padding, strict=True))
    counted = isinstance(layer, s.MaxPool) or (isinstance(layer, s.AvgPool) and layer.normalize_edges)
    if counted and any(0 in a.inside for a in found):
        raise ValueError(f"{layer!r}: a window lies in the padding altogether, on no pixel: pad less than the window")
    return found


def _each(layer: s.Layer, value: s.Size, ndim: int) -> tuple[int, ...]:
    """Return `value` as a tuple with one number per axis."""
    if not isinstance(value, tuple):
        return (int(value),) * ndim
    if len(value) != ndim:
        raise ValueError(f"{layer!r} on {ndim} spatial axis expects single numbers, got the pair {value}")
    return tuple(map(int, value))


def _paddings(layer: s.Layer, padding: s.Padding, ndim: int) -> tuple[str | tuple[int, int], ...]:
    """Return one entry per axis: the padding's name, or (before, after)."""
    if isinstance(padding, str):
        return (padding,) * ndim
    each = padding if isinstance(padding, tuple) else (padding,) * ndim
    pairs = tuple(tuple(map(int, p)) if isinstance(p, tuple) else (int(p), int(p)) for p in each)
    if len(pairs) != ndim or any(len(p) != 2 for p in pairs):
        raise ValueError(
            f"{layer!r} expects padding as one number, one for each of the {ndim} spatial axes, or a pair "
            f"(before, after) for each; got {padding!r}"
        )
    return pairs  # type: ignore[return-value]


@out_shape.register
def _(layer: s.Convolution, shape: Shape) -> Shape:
    return (*(a.out for a in axes(layer, shape)), int(layer.channels))


@out_shape.register
def _(layer: s.Pooling, shape: Shape) -> Shape:
    return (*(a.out for a in axes(layer, shape)), shape[-1])


@out_shape.register
def _(layer: s.GlobalAvgPool, shape: Shape) -> Shape:
    if len(shape) < 2:
        raise ValueError(f"GlobalAvgPool expects images (H, W, C) or sequences (L, C), got examples of shape {shape}")
    return (shape[-1],)


def check_channels_last(spec: s.Layer, shape: Shape) -> None:
    """Raise ValueError if convolutions or pools would read images that look channels-first, such as (3, 32, 32)."""
    if len(shape) == 3 and shape[0] in (1, 3) and shape[1] == shape[2] > 4 and _windowed(spec):
        C, H, W = shape
        raise ValueError(
            f"images are channels-last here, (N, {H}, {W}, {C}), and these, (N, {C}, {H}, {W}), look channels-first: "
            "move the axis, x.transpose(0, 2, 3, 1)"
        )


def _windowed(layer: s.Layer) -> bool:
    """True if the layer is or contains a convolution, `AvgPool` or `MaxPool`."""
    return hasattr(layer, "kernel_size") or isinstance(layer, s.Pooling) or any(map(_windowed, layer.inside))
