"""Compute layers of `minintk.more_layers` by plain loops over pixels and channels, and define laws for these layers."""

from __future__ import annotations

from math import ceil, floor, sqrt
from typing import Any

import numpy as np

import minintk as mn
from minintk import more_layers as more
from minintk import testing
from minintk.testing import assert_close
from tests.kit.oracles_images import window

Array = mn.Array
Conv = more.GroupedConv2d

CASES: list[tuple[more.GroupedConv2d, tuple[int, int, int]]] = [
    (Conv(4, 3, groups=2, b_std=0.3), (4, 3, 4)),
    (Conv(6, (3, 2), groups=3, stride=(2, 1), dilation=(1, 2), padding=1, b_std=0.2), (4, 4, 3)),
    (Conv(2, 3, dilation=2), (3, 4, 1)),
    (Conv(4, (1, 3), groups=4, padding="circular", w_std=1.4), (2, 4, 4)),
    (Conv(2, 2, groups=2, stride=2, padding=((0, 1), (1, 0)), b_std=0.1, b_init="zeros"), (3, 3, 2)),
]


def grouped_convolution(layer: more.GroupedConv2d, x: Array, W: Array, b: Array | None) -> Array:
    """Return the outputs z of a convolution with G groups of c input channels, n output channels and dilation d.

    z[p, o] = w_std / sqrt(K K' c) sum_s sum_i x[p + d s, g c + i] W[s, i, o] + b_std b[o], g = floor(o G / n)
    """

    def pair(value: Any) -> tuple[Any, Any]:
        return value if isinstance(value, tuple) else (value, value)

    c, n = x.shape[-1] // layer.groups, layer.channels
    kernel, stride, dilation = pair(layer.kernel_size), pair(layer.stride), pair(layer.dilation)
    padding = [(p, p) if isinstance(p, int) else p for p in pair(layer.padding)]
    reads = [
        [
            pixels[:: dilation[a]]
            for pixels in window(x.shape[1 + a], dilation[a] * (kernel[a] - 1) + 1, stride[a], padding[a])
        ]
        for a in (0, 1)
    ]
    z = np.zeros((len(x), len(reads[0]), len(reads[1]), n))
    for p, down in enumerate(reads[0]):
        for q, right in enumerate(reads[1]):
            for o in range(n):
                g = o * layer.groups // n
                for i, r in enumerate(down):
                    for j, s in enumerate(right):
                        if r is not None and s is not None:
                            z[:, p, q, o] += x[:, r, s, g * c : (g + 1) * c] @ W[i, j, :, o]
    z *= layer.w_std / sqrt(kernel[0] * kernel[1] * c)
    return z if b is None else z + layer.b_std * b


def adaptive(x: Array, size: tuple[int, int]) -> Array:
    """Average over windows. Window i has the rows floor(i H / H') <= p < ceil((i + 1) H / H'), with H' = size[0]."""
    _, H, W, _ = x.shape
    y = np.zeros((len(x), *size, x.shape[-1]))
    for i in range(size[0]):
        for j in range(size[1]):
            rows = slice(floor(i * H / size[0]), ceil((i + 1) * H / size[0]))
            columns = slice(floor(j * W / size[1]), ceil((j + 1) * W / size[1]))
            y[:, i, j] = x[:, rows, columns].mean(axis=(1, 2))
    return y


def group_norm(x: Array, groups: int, eps: float) -> Array:
    """Return (x - mean) / sqrt(variance + eps) for each example and group."""
    y, c = np.empty_like(x), x.shape[-1] // groups
    for n in range(len(x)):
        for g in range(groups):
            part = x[n, ..., g * c : (g + 1) * c]
            y[n, ..., g * c : (g + 1) * c] = (part - part.mean()) / sqrt(part.var() + eps)
    return y


# ------------------------------------------------------------------------------------------------ the laws


def outputs(layer: mn.spec.Layer, x: Array, theta: Array | None = None) -> Array:
    """Return the layer's outputs, flattened per example."""
    net = mn.Network(mn.Sequential(layer, mn.Flatten()), x.shape[1:])
    return np.asarray(net(net.init(np.random.default_rng(0)) if theta is None else theta, x))


def formulas() -> None:
    """outputs of grouped convolutions, adaptive pooling and GroupNorm = loops over pixels"""
    rng = np.random.default_rng(0)
    for layer, shape in CASES:
        x, net = rng.standard_normal((2, *shape)), mn.Network(mn.Sequential(layer, mn.Flatten()), shape)
        theta = net.init(rng) + 0.5
        w = net.layout.unpack(theta)
        want = grouped_convolution(layer, x, w["0.W"], w.get("0.b"))
        assert_close("f of a grouped convolution", net(theta, x), want.reshape(2, -1), 1e-12)
    x = rng.standard_normal((2, 5, 3, 4))
    for size in ((2, 3), (7, 1), (3, 2)):
        assert_close(
            "means of windows", outputs(more.AdaptiveAvgPool(size), x), adaptive(x, size).reshape(2, -1), 1e-14
        )
    assert_close("normalised", outputs(more.GroupNorm(2, 0.1), x), group_norm(x, 2, 0.1).reshape(2, -1), 1e-13)


def derivatives() -> None:
    """the adjoint, the derivative and the gram of grouped convolutions are right"""
    for layer, shape in CASES[:2]:
        testing.check_layer(layer, shape)


def derivatives_of_others() -> None:
    """the adjoint, the derivative and the gram of the other layers of more_layers are right"""
    for layer, shape in (
        *((phi, (4,)) for phi in (more.ELU(0.7), more.Hardswish(), more.TanhGELU(), more.Hardtanh(-0.3, 0.4))),
        (more.AdaptiveAvgPool((2, 3)), (3, 2, 2)), (more.GroupNorm(2, 0.1), (2, 3, 4)),
    ):  # fmt: skip
        testing.check_layer(layer, shape)
