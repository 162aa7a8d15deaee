"""Describe the benchmarked networks as data, and build them with each library.

    part     (kind, *how): conv channels size stride padding | dense features | relu | norm | max size stride | mean |
             flatten | residual branch shortcut
    weights  {name: array} with the names of minintk's layout: "3.W", "1.branch.2.W", "3.shortcut.W", "0.b"

`apply` evaluates the parts with a library's operations. Images have their channels last (first in PyTorch). Weights of
convolutions have shape (size, size, input channels, output channels).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

Net = Sequence[tuple[Any, ...]]
Arrays = Mapping[str, Any]
EPS = 1e-5
"""The constant that batch normalisation adds to the variance."""


def mlp(*widths: int) -> Net:
    """Return a network of dense layers of these widths, with ReLU between them."""
    return tuple(part for n in widths for part in (("dense", n), ("relu",)))[:-1]


def lenet(width: int) -> Net:
    """Return LeNet-5 for 28 x 28 x 1 images, with every layer but the last `width` times as wide."""
    pool, relu = ("max", 2, 2), ("relu",)
    features = (("conv", 6 * width, 5, 1, 2), relu, pool, ("conv", 16 * width, 5, 1, 0), relu, pool, ("flatten",))
    return (*features, ("dense", 120 * width), relu, ("dense", 84 * width), relu, ("dense", 10))


def alexnet() -> Net:
    """Return the single-column AlexNet without dropout, for 224 x 224 x 3 images and 1000 classes."""
    pool, relu = ("max", 3, 2), ("relu",)
    first = (("conv", 64, 11, 4, 2), relu, pool, ("conv", 192, 5, 1, 2), relu, pool)
    rest = [part for n in (384, 256, 256) for part in (("conv", n, 3, 1, 1), relu)]
    return (*first, *rest, pool, ("flatten",), ("dense", 4096), relu, ("dense", 4096), relu, ("dense", 1000))


def resnet(norm: bool, channels: int = 16) -> Net:
    """Return a residual network for 32 x 32 x 3 images with or without BatchNorm. It has sixteen layers with weights.

    The network has three stages of two residual blocks.
    """
    before = (*([("norm",)] if norm else []), ("relu",))
    parts: list[tuple[Any, ...]] = [("conv", channels, 3, 1, 1)]
    for stage in range(3):
        n = channels * 2**stage
        for stride in (2 if stage else 1, 1):
            branch = (*before, ("conv", n, 3, stride, 1), *before, ("conv", n, 3, 1, 1))
            parts.append(("residual", branch, ("conv", n, 1, stride, 0) if stride > 1 else None))
    return (*parts, *before, ("mean",), ("dense", 10))


def weights(net: Net, shape: tuple[int, ...], rng: np.random.Generator, biases: bool) -> dict[str, Any]:
    """Draw each layer's W with variance 2 / fan-in and, if `biases`, b with variance .01, in float64.

    shape : (H, W, C), the shape of an image.
    """
    found: dict[str, Any] = {}
    for name, size, _ in trace(net, shape):
        found[f"{name}.W"] = rng.standard_normal(size) * (2 / prod(size[:-1])) ** 0.5
        if biases:
            found[f"{name}.b"] = 0.1 * rng.standard_normal(size[-1])
    return found


Traced = tuple[str, tuple[int, ...], int]


def trace(net: Net, shape: tuple[int, ...], path: str = "") -> Generator[Traced, None, tuple[int, ...]]:
    """Yield (name, shape of W, output pixels) for every layer with weights, and return the shape of the output."""
    for i, (kind, *how) in enumerate(net):
        if kind == "residual":
            branch, shortcut = how
            if shortcut:
                yield from ((f"{path}{i}.shortcut", at, pixels) for _, at, pixels in trace([shortcut], shape))
            shape = yield from trace(branch, shape, f"{path}{i}.branch.")
        elif kind in ("conv", "max"):
            channels, size, stride, padding = how if kind == "conv" else (shape[-1], *how, 0)
            out = [(n + 2 * padding - size) // stride + 1 for n in shape[:-1]]
            if kind == "conv":
                yield f"{path}{i}", (size, size, shape[-1], channels), prod(out)
            shape = (*out, channels)
        elif kind == "dense":
            yield f"{path}{i}", (shape[0], how[0]), 1
            shape = (how[0],)
        elif kind == "flatten":
            shape = (prod(shape),)
        elif kind == "mean":
            shape = shape[-1:]
    return shape


def apply(net: Net, w: Arrays, x: Any, ops: Any, path: str = "") -> Any:
    """Return the network's outputs, computed with the operations of `ops`."""
    for i, (kind, *how) in enumerate(net):
        name = f"{path}{i}"
        if kind == "residual":
            branch, shortcut = how
            y = ops.conv(x, w[f"{name}.shortcut.W"], None, *shortcut[2:]) if shortcut else x
            x = y + apply(branch, w, x, ops, f"{name}.branch.")
        elif kind in ("conv", "dense"):
            x = getattr(ops, kind)(x, w[f"{name}.W"], w.get(f"{name}.b"), *how[1:])
        else:
            x = getattr(ops, kind)(x, *how)
    return x


def spec(net: Net, biases: bool) -> Any:
    """Return the network as a minintk spec. b_std is 1 in layers with biases, and 0 in all others."""
    import minintk as mn

    plain = {"relu": mn.ReLU, "norm": mn.BatchNorm, "mean": mn.GlobalAvgPool, "flatten": mn.Flatten}
    b_std = float(biases)

    def part(kind: str, *how: Any) -> Any:
        if kind == "conv":
            return mn.Conv2d(*how[:2], stride=how[2], padding=how[3], b_std=b_std)
        if kind == "dense":
            return mn.Dense(*how, b_std=b_std)
        if kind == "residual":
            return mn.Residual(spec(how[0], biases), part(*how[1]) if how[1] else mn.Identity())
        return mn.MaxPool(how[0], stride=how[1]) if kind == "max" else plain[kind]()

    return mn.Sequential(*(part(*one) for one in net))


class ByNumPy:
    """The layers in plain NumPy, or in Autograd's wrapper of NumPy, with which the references are computed."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def _windows(self, x: Any, size: int, stride: int, padding: int) -> Iterator[Any]:
        """Yield, for each position (s, t) in a window, the values there in all windows, as arrays (N, H', W', C)."""
        x = self.xp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)), "constant")
        H, W = ((n - size) // stride * stride + 1 for n in x.shape[1:3])
        for s in range(size):
            for t in range(size):
                yield x[:, s : s + H : stride, t : t + W : stride]

    def conv(self, x: Any, w: Any, b: Any, size: int, stride: int, padding: int) -> Any:
        read = self.xp.concatenate(list(self._windows(x, size, stride, padding)), axis=3)
        return self.dense(read.reshape(-1, read.shape[3]), w.reshape(-1, w.shape[3]), b).reshape(*read.shape[:3], -1)

    def dense(self, x: Any, w: Any, b: Any) -> Any:
        return x @ w if b is None else x @ w + b

    def relu(self, x: Any) -> Any:
        return x * (x > 0)

    def norm(self, x: Any) -> Any:
        x = x - self.xp.mean(x, axis=(0, 1, 2))
        return x / self.xp.sqrt(self.xp.mean(x * x, axis=(0, 1, 2)) + EPS)

    def max(self, x: Any, size: int, stride: int) -> Any:
        return self.xp.max(self.xp.stack(list(self._windows(x, size, stride, 0))), axis=0)

    def mean(self, x: Any) -> Any:
        return self.xp.mean(x, axis=(1, 2))

    def flatten(self, x: Any) -> Any:
        return x.reshape(x.shape[0], -1)


class ByJAX(ByNumPy):
    """The operations of `ByNumPy` in JAX. Convolutions and windows use XLA's own operations."""

    def conv(self, x: Any, w: Any, b: Any, size: int, stride: int, padding: int) -> Any:
        from jax import lax

        how = ((stride, stride), [(padding, padding)] * 2)
        z = lax.conv_general_dilated(x, w, *how, dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return z if b is None else z + b

    def max(self, x: Any, size: int, stride: int) -> Any:
        from jax import lax

        return lax.reduce_window(x, -self.xp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), "VALID")

    def relu(self, x: Any) -> Any:
        return self.xp.maximum(x, 0)


class ByPyTorch:
    """The operations of `ByNumPy` in PyTorch, on images and weights in PyTorch's order of axes."""

    @staticmethod
    def weights(arrays: Arrays) -> dict[str, Any]:
        """Convert weights to tensors: (out, in, size, size) for convolutions and (out, in) for dense layers."""
        import torch

        return {name: torch.from_numpy(np.ascontiguousarray(w.T if w.ndim < 4 else w.transpose(3, 2, 0, 1)))
                for name, w in arrays.items()}  # fmt: skip

    def conv(self, x: Any, w: Any, b: Any, size: int, stride: int, padding: int) -> Any:
        from torch.nn.functional import conv2d

        return conv2d(x, w, b, stride, padding)

    def dense(self, x: Any, w: Any, b: Any) -> Any:
        from torch.nn.functional import linear

        return linear(x, w, b)

    def relu(self, x: Any) -> Any:
        return x.relu()

    def norm(self, x: Any) -> Any:
        from torch.nn.functional import batch_norm

        return batch_norm(x, None, None, training=True, eps=EPS)

    def max(self, x: Any, size: int, stride: int) -> Any:
        from torch.nn.functional import max_pool2d

        return max_pool2d(x, size, stride)

    def mean(self, x: Any) -> Any:
        return x.mean(dim=(2, 3))

    def flatten(self, x: Any) -> Any:
        return x.permute(0, 2, 3, 1).flatten(1)  # flattens channels last, like the other libraries
