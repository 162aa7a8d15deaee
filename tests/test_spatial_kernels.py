"""Infinite convolutional networks: reference values, brute force, laws, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles_kernels import image_errors, image_kernels

import analytic as an
import minintk as mn
from minintk.structure import out_shape

Array = Any

R2 = 2**0.5
XI1 = np.cos(np.arange(120.0)).reshape(2, 4, 5, 3)
XI2 = np.sin(1 + np.arange(180.0)).reshape(3, 4, 5, 3)
D = mn.Dense(1, w_std=R2, b_std=0.1)


def conv(**how: Any) -> mn.Conv2d:
    return mn.Conv2d(6, 3, w_std=R2, b_std=0.1, **how)


# ------------------------------------------------------------------------------------ reference values

REFERENCE: dict[str, tuple[mn.Sequential, tuple[float, ...]]] = {
    "same, flatten": (
        mn.Sequential(conv(), mn.ReLU(), conv(), mn.ReLU(), mn.Flatten(), D),
        (0.5215085529, 2.2673001542, 1.2700230734, 4.8306837680),
    ),
    "same, pooled": (
        mn.Sequential(conv(), mn.ReLU(), conv(), mn.ReLU(), mn.GlobalAvgPool(), D),
        (0.2906804653, 1.7569702769, 0.4597652346, 2.8063270879),
    ),
    "valid, pooled": (
        mn.Sequential(conv(padding="valid"), mn.ReLU(), mn.GlobalAvgPool(), D),
        (0.4502505217, 2.7324430648, 0.7092958459, 4.3850853896),
    ),
    "circular, strided, pooled": (
        mn.Sequential(conv(padding="circular", stride=(2, 1)), mn.ReLU(), mn.GlobalAvgPool(), D),
        (0.3803541936, 2.2523596089, 0.4685873764, 2.7943435278),
    ),
    "average pooling, flatten": (
        mn.Sequential(conv(), mn.ReLU(), mn.AvgPool(2), mn.Flatten(), D),
        (0.3246706123, 1.9726207101, 0.4694470738, 2.9375832450),
    ),
    "erf, pooled": (
        mn.Sequential(conv(), mn.Erf(), conv(), mn.Erf(), mn.GlobalAvgPool(), D),
        (0.0298266172, 0.1745712436, 0.0622954390, 0.3602309062),
    ),
}
"""neural-tangents 0.6.5, float64: entry [0, 0] and the sum of NNGP, the same of NTK."""


@pytest.mark.parametrize("name", REFERENCE)
def test_reference(name: str) -> None:
    spec, values = REFERENCE[name]
    k, t = an.kernel(spec).both(XI1, XI2)
    np.testing.assert_allclose([k[0, 0], k.sum(), t[0, 0], t.sum()], values, rtol=0, atol=1e-9)


def test_reference_of_layer_norm() -> None:
    x1, x2 = np.cos(np.arange(12.0)).reshape(3, 4), np.sin(1 + np.arange(8.0)).reshape(2, 4)
    spec = mn.Sequential(D, mn.LayerNorm(eps=1e-12), mn.ReLU(), D)
    k, t = an.kernel(spec).both(x1, x2)
    values = (0.9093382132, 2.3910976842, 1.6623221199, 3.4539481004)
    np.testing.assert_allclose([k[0, 0], k.sum(), t[0, 0], t.sum()], values, rtol=0, atol=1e-9)
    on_pixels = mn.Sequential(mn.Conv2d(6, 1, w_std=R2, b_std=0.1), *spec.layers[1:3], mn.Flatten(), D)
    got = an.kernel(on_pixels).both(x1[:, None, None], x2[:, None, None])
    for one, other in zip(got, (k, t)):
        np.testing.assert_allclose(one, other, rtol=1e-13)


# ----------------------------------------------------------------------------------------- brute force

CLOSED = (mn.ReLU(), mn.ReLU(), mn.LeakyReLU(0.2), mn.Abs(), mn.Erf(), mn.Sin())


@st.composite
def windows(draw: st.DrawFn, shape: tuple[int, ...], pool: bool = False) -> mn.spec.Layer:
    """A convolution or pooling that fits; kernels larger than the image and strides that do not divide among them."""
    two = len(shape) == 3
    size = st.integers(1, 4)
    padding = draw(st.sampled_from(["same", "valid", "circular", 1, ((1, 0), (0, 2)) if two else ((2, 0),)]))
    kernel, stride = draw(st.tuples(size, size) if two else size), draw(st.sampled_from([1, 1, 2, 3]))
    if pool:
        layer: mn.spec.Layer = mn.AvgPool(
            draw(st.sampled_from([1, 2, 3])), stride=draw(st.sampled_from([None, 1, 2])), padding=padding
        )
    else:
        scales: dict[str, Any] = {
            "w_std": draw(st.sampled_from([0.7, R2])),
            "b_std": draw(st.sampled_from([0.0, 0.0, 0.3])),
            "b_init": draw(st.sampled_from(["normal", "zeros"])),
        }
        layer = (
            mn.Conv2d(5, kernel, stride=stride, padding=padding, **scales)
            if two
            else mn.Conv1d(5, kernel, stride=stride, padding=padding, **scales)
        )
    try:
        out_shape(layer, shape)
    except ValueError:
        return mn.AvgPool(1) if pool else (mn.Conv2d(5, 1) if two else mn.Conv1d(5, 1))
    return layer


@st.composite
def image_specs(draw: st.DrawFn, shape: tuple[int, ...]) -> mn.Sequential:
    """Convolutions, activations, pooling, normalisation and sums; flattened, pooled, or left as images."""
    layers: list[mn.spec.Layer] = []
    for _ in range(draw(st.integers(1, 3))):
        block: list[mn.spec.Layer] = [draw(windows(shape))]
        if draw(st.integers(0, 4)) == 0:
            block.append(mn.LayerNorm(eps=0.1))
        block.append(draw(st.sampled_from(CLOSED)))
        if draw(st.booleans()):
            block.append(draw(windows(out_shape(mn.Sequential(*block), shape), pool=True)))
        two = len(shape) == 3
        back = mn.Conv2d(shape[-1], 3, b_std=0.2) if two else mn.Conv1d(shape[-1], 3, b_std=0.2)
        whole = out_shape(mn.Sequential(*block), shape)[:-1] == shape[:-1]
        if layers and whole and draw(st.booleans()):
            layers.append(mn.Residual(mn.Sequential(*block, back)))
        else:
            layers += block
        shape = out_shape(layers[-1] if isinstance(layers[-1], mn.Residual) else mn.Sequential(*block), shape)
    end = draw(st.sampled_from(["flatten", "pool", "images", "pool, deep"]))
    if end == "flatten":
        layers.append(mn.Flatten())
    if end.startswith("pool"):
        layers.append(mn.GlobalAvgPool())
    if end == "pool, deep":
        layers += [mn.Dense(5, b_std=0.1), mn.ReLU()]
    return mn.Sequential(*layers, *([] if end == "images" else [mn.Dense(2, w_std=1.3)]))


@st.composite
def image_cases(draw: st.DrawFn) -> tuple[mn.Sequential, Array]:
    """A spec and three images, two of them near one another."""
    shape = draw(st.sampled_from([(3, 4, 2), (2, 2, 1), (1, 1, 3), (1, 5, 1), (4, 2), (3, 3, 1)]))
    spec = draw(image_specs(shape))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.standard_normal((3, *shape))
    kind = draw(st.sampled_from(["any", "equal", "near", "black", "border"]))
    if kind == "equal":
        x[1] = x[0]
    if kind == "near":
        x[1] = x[0] * (1 + 1e-9)
    if kind == "black":
        x[1] = 0
    if kind == "border":
        x[:, 0] = 0
        x[:, :, 0] = 0
    return spec, x


def law_brute_force(case: tuple[mn.Sequential, Array]) -> None:
    """NNGP and NTK of images = the covariances of all pixels with one another, layer by layer"""
    spec, x = case
    try:
        got = an.kernel(spec).both(x)
    except mn.UnsupportedLayer:
        return
    errors = image_errors(got, image_kernels(spec, x))
    assert max(errors) < 2e-8, f"NNGP, NTK off by {errors[0]:.1e}, {errors[1]:.1e}"


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40)
@given(image_cases())
def test_brute_force(case: tuple[mn.Sequential, Array]) -> None:
    law_brute_force(case)
