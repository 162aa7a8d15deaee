"""Test kernels of equal, opposite, black and out-of-range images against brute force, at many scales."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import analytic as an
import minintk as mn
from analytic.images import activations, engine, fields, precision
from analytic.images.pixel_pairs import BYTES_PER_PIECE
from analytic.recursion.requests import Examples
from tests.analytic.images.test_engine import D, conv, images
from tests.kit.oracles_kernels import image_errors, image_kernels

Array = Any

CONV, BIASED = mn.Conv2d(4, 3, w_std=2**0.5), mn.Conv2d(4, 3, w_std=2**0.5, b_std=0.1)
HEADS: dict[str, tuple[mn.spec.Layer, ...]] = {
    "flatten": (CONV, mn.ReLU(), mn.Flatten()),
    "pool": (CONV, mn.ReLU(), mn.GlobalAvgPool()),
    "pool between": (CONV, mn.ReLU(), mn.AvgPool(2), CONV, mn.ReLU(), mn.GlobalAvgPool()),
    "pool, deep": (CONV, mn.LeakyReLU(0.3), mn.AvgPool(3, stride=1, padding="same"), CONV, mn.Abs(), mn.Flatten()),
}


def network(head: str) -> mn.Sequential:
    return mn.Sequential(*HEADS[head], mn.Dense(1))


def some(seed: int = 0) -> Array:
    """Return three images, a copy of the first, the opposite of the second, and a black image."""
    x = np.random.default_rng(seed).standard_normal((3, 4, 5, 2))
    return np.concatenate([x, x[:1], -x[1:2], 0 * x[:1]])


@pytest.mark.parametrize("head", HEADS)
@settings(max_examples=2)
@given(st.integers(-140, 140), st.integers(0, 2**32 - 1))
@example(0, 0)
@example(-140, 1)
@example(140, 2)
def test_equal_opposite_and_black_images_at_every_scale(head: str, power: int, seed: int) -> None:
    """Without biases the kernel is homogeneous of degree 2, so brute force at scale 1 determines it at all scales."""
    x = some(seed)
    truth = image_kernels(network(head), x)
    kernel = an.kernel(network(head))
    nngp, ntk = kernel.both(10.0**power * x)
    scale = 10.0 ** (-power)
    assert max(image_errors((nngp * scale * scale, ntk * scale * scale), truth)) < 4e-9  # the oracle's error at angle 0
    assert not np.any([nngp[5], ntk[5]])
    for k, d in zip((nngp, ntk), kernel.diag(10.0**power * x)):
        np.testing.assert_allclose(np.diagonal(k), d, rtol=1e-14)
        np.testing.assert_allclose([k[0, 3], k[3, 3]], k[0, 0], rtol=1e-14)  # the same image twice


def opposite_error(dtype: Any) -> float:
    """Return the largest |Theta(x, -x)| / Theta(x, x) in units of eps. For one window and a ReLU, it should be 0."""
    x = np.random.default_rng(0).standard_normal((12, 4, 5, 2)).astype(dtype)
    one_pixel = mn.Conv2d(4, 3, w_std=2**0.5, padding="valid", stride=9)
    kernel = an.kernel(mn.Sequential(one_pixel, mn.ReLU(), mn.Flatten(), mn.Dense(1)))
    both = kernel.ntk(np.concatenate([x, -x]))
    return float(np.max(np.abs(np.diagonal(both[:12, 12:])) / np.diagonal(both)[:12]) / np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_opposite_images_are_opposite(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opposite_error(dtype) < 2
    monkeypatch.setattr(activations, "OPPOSITE_ROUNDINGS", 1e-30)
    assert opposite_error(dtype) > 100


def repeated_error() -> float:
    """Return the error of Theta(image, copy) in float32, relative to the diagonal."""
    x = np.repeat(some()[:3], 2, axis=0).astype(np.float32)
    k = an.kernel(network("pool between")).ntk(x)
    return float(np.max(np.abs(k[::2, 1::2].diagonal() / k[::2, ::2].diagonal() - 1)))


def test_images_that_are_equal_stay_so_through_pooling(monkeypatch: pytest.MonkeyPatch) -> None:
    assert repeated_error() < 5e-7
    monkeypatch.setattr(fields, "ROUNDINGS", 0.0)
    assert repeated_error() > 5e-7


def repeated_behind_a_series() -> float:
    """Return the largest relative error of Theta(image, copy), in float64, after an activation by quadrature.

    With a quadrature, the distance D is a sum of many terms.
    """
    layer, errors = mn.Conv2d(4, 3, w_std=1.3, b_std=0.5, padding="same"), []
    for pool in (mn.AvgPool(2), mn.AvgPool(2, stride=1, padding="same")):
        x = np.random.default_rng(1).standard_normal((6, 6, 6, 2))
        x[0] = x[1] = x[0, 0, 0]
        x[2] = x[3]
        k = an.kernel(mn.Sequential(layer, mn.Tanh(), pool, layer, mn.ReLU(), mn.Flatten(), mn.Dense(1))).ntk(x)
        errors += [abs(k[0, 1] / k[0, 0] - 1), abs(k[2, 3] / k[2, 2] - 1)]
    return float(max(errors))


def test_images_that_are_equal_stay_so_behind_a_series(monkeypatch: pytest.MonkeyPatch) -> None:
    assert repeated_behind_a_series() < 1e-14
    monkeypatch.setattr(activations, "ROUNDINGS_OF_SERIES", fields.ROUNDINGS)
    assert repeated_behind_a_series() > 1e-10


@pytest.mark.parametrize("ratio", [1e2, 1e4, 1e6])
def test_bright_next_to_dim_images(ratio: float) -> None:
    """Without ReLU, if images differ in scale by a factor `ratio`, errors are below 20 eps times `ratio`."""
    x = some()
    x[:2] *= ratio
    spec = mn.Sequential(BIASED, mn.Erf(), CONV, mn.Erf(), mn.Flatten(), mn.Dense(1))
    assert max(image_errors(an.kernel(spec).both(x), image_kernels(spec, x))) < 4e-15 * ratio


@pytest.mark.parametrize("ratio", [1e2, 1e4, 1e6, 1e10])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_black_image_that_a_later_bias_lifts(ratio: float, dtype: str) -> None:
    """A later bias gives a black image a variance, which the kernel must resolve next to larger variances.

    If the other images are scaled by up to 1e6, the kernel is correct. At a scale of 1e10, an error is raised.
    """
    x = ratio * some()
    x[1] = 0
    spec, x = mn.Sequential(CONV, mn.ReLU(), BIASED, mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1)), x.astype(dtype)
    if ratio > 1e9:
        with pytest.raises(ValueError, match=r"x1\[1\] and x1\[\d\] have root mean squares of 0.07.* scale the images"):
            an.kernel(spec).both(x)
        return
    found = image_errors(an.kernel(spec).both(x), image_kernels(spec, x.astype(np.float64)))
    assert max(found) < 4e-15 * ratio + (1e-13 if dtype == "float64" else 1e-6)


@pytest.mark.parametrize("head", [mn.Flatten(), mn.GlobalAvgPool()], ids=["flat", "pooled"])
@pytest.mark.parametrize("phi", [mn.ReLU(), mn.Abs()], ids=repr)
def test_kernels_at_the_end_of_the_range_are_right_or_refused(phi: mn.Layer, head: mn.Layer) -> None:
    """Kernels in which intermediate sums leave the float range are correct or raise an error.

    Clipped sums would make Theta wrong by up to 100 %.
    """
    x, right = np.clip(np.random.default_rng(0).standard_normal((4, 5, 5, 2)), -1, 1), set()
    kernel = an.kernel(mn.Sequential(BIASED, phi, mn.AvgPool(2), BIASED, phi, head, mn.Dense(1)))
    expected = [*kernel.both(2.0**400 * x), *kernel.diag(2.0**400 * x)]  # the biases are negligible
    for power in range(490, 512):
        with suppress(ValueError):
            found = [*kernel.both(2.0**power * x), *kernel.diag(2.0**power * x)]
            right.add(power)
            assert all(np.array_equal(a, 4.0 ** (power - 400) * b) for a, b in zip(found, expected, strict=True))
    assert right == set(range(490, max(right) + 1))
    assert max(right) > 495
    for call in (kernel.both, kernel.diag):
        with pytest.raises(ValueError, match=r"x1?\[0\] is out of range"):
            call(2.0 ** (max(right) + 1) * x)


def test_images_out_of_range_have_names() -> None:
    x = some()
    x[1] *= 1e155
    free, biased = (an.kernel(mn.Sequential(c, mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1))) for c in (CONV, BIASED))
    with pytest.raises(ValueError, match=r"x1\[1\] is out of range: its variance is inf"):
        free.ntk(x)
    with pytest.raises(ValueError, match=r"x2\[1\] is out of range"):
        biased.nngp(x[:1], x)
    with pytest.raises(ValueError, match=r"x\[1\]|x1\[1\] is out of range"):
        free.diag(x)
    x[1] *= 1e-20
    with pytest.raises(ValueError, match=r"x1\[5\] and x1\[1\] have root mean squares of 0\.07.* kernels apart"):
        biased.ntk(x)
    assert np.isfinite(free.ntk(x)).all()
    x[1] *= 1e-150
    x[1] *= 1e-150
    with pytest.raises(ValueError, match=r"x1\[1\] is out of range"):
        free.ntk(x)
    assert np.isfinite(biased.ntk(x)).all()
    large = 1e30 * some().astype(np.float32)
    with pytest.raises(ValueError, match=r"x1\[\d\] and x1\[\d\] have a kernel of .*, and float32 ends at 3\.4e\+38"):
        free.ntk(large)
    grown = mn.Sequential(*[mn.Conv2d(4, w_std=1e60), mn.ReLU()] * 3, mn.Flatten(), mn.Dense(1))
    with pytest.raises(ValueError, match=r"x1\[0\] is out of range: a pixel's variance, or Theta, exceeds"):
        an.kernel(grown).ntk(some())


def test_smooth_activations_of_images_in_several_pieces() -> None:
    """Images of 24 x 24 pixels, which an activation processes in pieces, and their mirror images have equal kernels."""
    x = np.random.default_rng(0).standard_normal((2, 24, 24, 1)) * np.linspace(0.1, 3, 24)[:, None, None]
    mirrored = x[:, ::-1]
    kernel = an.kernel(mn.Sequential(mn.Conv2d(4, 3), mn.Erf(), mn.GlobalAvgPool(), mn.Dense(1)))
    for k, other in zip(kernel.both(x), kernel.both(np.ascontiguousarray(mirrored))):
        np.testing.assert_allclose(k, other, rtol=1e-12)
    assert BYTES_PER_PIECE < 576 * 576 * 8


# --------------------------------------------------------------------------------------------- choice of precision

WITH_BIAS = mn.Sequential(mn.Conv2d(4, 3), mn.ReLU(), mn.Conv2d(4, 3, b_std=1e-9), mn.Erf(), mn.Flatten(), mn.Dense(1))


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(("ratio", "right"), [(0.5, np.float32), (2.0, np.float64)])
def test_images_further_apart_than_float32_resolves_are_taken_in_float64(
    size: float, ratio: float, right: type[np.floating[Any]]
) -> None:
    """The choice of float64 depends only on the ratio of two images' variances, not on `size`."""
    x = np.ones((2, 4, 4, 1), np.float32) * size
    x[1] *= (ratio * precision.FLOAT32_MAX_RATIO) ** 0.5
    kernel = an.kernel(WITH_BIAS)
    assert precision.field_precision(kernel._program((4, 4, 1)), Examples(x)) == right


ATTENTION = mn.GlobalSelfAttention(4, scaling="sqrt", zeta=mn.Identity(), b_std=1e-9)
CUBES = mn.Sequential(mn.Conv1d(4, 1), mn.ReLU(), ATTENTION, mn.Erf(), mn.Flatten(), mn.Dense(1))


@pytest.mark.parametrize(
    ("spec", "shape", "variance", "right"),
    [
        (WITH_BIAS, (4, 4, 1), 1e13, np.float32),
        (WITH_BIAS, (4, 4, 1), 1e15, np.float64),
        (WITH_BIAS, (4, 4, 1), 1e-13, np.float32),
        (WITH_BIAS, (4, 4, 1), 1e-15, np.float64),
        (CUBES, (4, 1), 1e4, np.float32),  # attention multiplies three variances
        (CUBES, (4, 1), 1e6, np.float64),
    ],
)
def test_variances_that_float32_cannot_hold_are_taken_in_float64(
    spec: mn.Sequential, shape: tuple[int, ...], variance: float, right: type[np.floating[Any]]
) -> None:
    x = np.full((2, *shape), variance**0.5, np.float32)
    assert precision.field_precision(an.kernel(spec)._program(shape), Examples(x)) == right


@pytest.mark.parametrize("F", [1, 2])
def test_an_entry_that_is_too_large_is_told_by_its_pair(F: int) -> None:
    """The message names the pair even if the block does not begin with the first image, for one or two sets of images.

    The largest representable entry is accepted.
    """
    one, two = (np.ones((count, 2, 2, 1), np.float32) for count in (8, 9))
    values = np.zeros((2, 3 * F, 2 * F))
    values[1, -1, -1] = np.finfo(np.float32).max
    precision.check_entries(Examples(two), slice(4, 7), slice(7, 9), values, F)
    values[1, -1, -1] = -1e39
    with pytest.raises(ValueError, match=r"x1\[6\] and x1\[8\] have a kernel of 1e\+39, and float32 ends at 3.4e\+38"):
        precision.check_entries(Examples(two), slice(4, 7), slice(7, 9), values, F)
    with pytest.raises(ValueError, match=r"x1\[6\] and x2\[8\] have a kernel"):
        precision.check_entries(Examples(one, two), slice(4, 7), slice(7, 9), values, F)


def test_where_zeros_stand_does_not_tell_opposites() -> None:
    """Opposite images are found whatever the signs of their zeros. Black images have no opposite."""
    for x in ([[1.0, -0.0], [-1.0, -0.0]], [[1.0, 0.0], [-1.0, -0.0]], [[3.0, 0.0], [0.0, 0.0], [-3.0, 0.0]]):
        assert precision.holds_opposites(np.array(x))
    for x in ([[0.0, -0.0], [0.0, 0.0]], [[1.0, 0.0], [1.0, -0.0]], [[1.0, -1.0], [-1.0, -1.0]]):
        assert not precision.holds_opposites(np.array(x))


def test_black_images_that_stay_black_keep_float32() -> None:
    """If no bias gives black images a variance, they do not require float64, whatever the scale of the other images."""
    kernel, x = (
        an.kernel(mn.Sequential(CONV, mn.Erf(), CONV, mn.Erf(), mn.Flatten())),
        np.ones((3, 4, 4, 1), np.float32),
    )
    for scales in ((0.0, 1e6, 1e6), (0.0, 1e-3, 1e-3), (0.0, 0.0, 0.0)):
        scaled = x * np.array(scales, np.float32)[:, None, None, None]
        assert precision.field_precision(kernel._program((4, 4, 1)), Examples(scaled)) == np.float32


TRAINED = mn.Conv2d(4, 3, b_std=0.1, b_init="zeros")


@pytest.mark.parametrize(
    ("layers", "free"),
    [
        ((CONV, mn.ReLU(), mn.AvgPool(2), CONV, mn.Dropout(0.5), mn.Flatten(), mn.Dense(1)), True),
        *(((CONV, mn.ReLU(), layer, mn.Flatten()), False) for layer in (BIASED, TRAINED)),
        *(((CONV, phi, mn.Flatten()), False) for phi in (mn.Erf(), mn.Tanh(), mn.LayerNorm())),
        ((CONV, mn.ReLU(), mn.Flatten(), mn.Dense(1, b_std=0.1)), False),
        ((CONV, mn.Residual(mn.Sequential(mn.ReLU(), BIASED)), mn.Flatten()), False),
        ((CONV, mn.Residual(mn.Sequential(mn.ReLU(), CONV)), mn.Flatten()), True),
    ],
    ids=str,
)
def test_networks_without_biases_and_scales_are_scale_free(layers: tuple[mn.spec.Layer, ...], free: bool) -> None:
    assert precision.scale_free(an.kernel(mn.Sequential(*layers))._program((4, 4, 1))) == free


def test_the_ends_of_what_is_taken() -> None:
    """Ratios of scales up to 1e8 and variances from 1e-270 are accepted. Beyond these limits, errors are raised."""
    kernel, x = an.kernel(mn.Sequential(CONV, mn.Erf(), mn.Flatten())), np.ones((2, 4, 4, 1))
    for ratio, size, right in ((0.95e8, 1.0, True), (1.05e8, 1.0, False), (1, 1.2e-135, True), (1, 0.8e-135, False)):
        scaled = x * np.array([size, ratio * size])[:, None, None, None]
        if right:
            assert np.isfinite(kernel.ntk(scaled)).all()
        else:
            with pytest.raises(ValueError, match=r"ratio of 1e|is out of range"):
                kernel.ntk(scaled)


# ------------------------------------------------------------------------------------- float32 and its range


@pytest.mark.parametrize("scales", [(1e3, 1e-3), (1e6, 1.0), (1e6, 0.0), (1e12, 1e12), (1e-9, 1e-9)])
@pytest.mark.parametrize("end", [mn.Flatten(), mn.GlobalAvgPool()], ids=["flat", "pooled"])
def test_float32_of_images_of_any_size(end: mn.spec.Layer, scales: tuple[float, float]) -> None:
    """Kernels of bright images next to dim or black ones, and of very bright or very dim ones, are accurate to 1e-6."""
    x = (images(2, (4, 5, 2)) * np.array(scales)[:, None, None, None]).astype(np.float32)
    small = mn.Sequential(mn.Conv2d(3, 3), mn.Erf(), end, mn.Dense(1))
    large = mn.Sequential(conv(), mn.ReLU(), conv(), mn.ReLU(), end, D)
    kernel = an.kernel(small if max(scales) < 1 else large)
    for one, exact in zip(kernel.both(x), kernel.both(x.astype(np.float64))):
        size = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
        assert one.dtype == np.float32
        assert np.max(np.abs(one - exact) / size) < 1e-6


@pytest.mark.parametrize("phi", [mn.ReLU(), mn.LeakyReLU(0.3)], ids=repr)
@pytest.mark.parametrize("end", [mn.Flatten(), mn.GlobalAvgPool()], ids=["flat", "pooled"])
def test_black_pixels_stay_black_through_pooling(end: mn.spec.Layer, phi: mn.spec.Layer) -> None:
    """Rounding must not give black pixels a variance.

    Theta of black pixels depends only on phi'(0) and on phi' of the other pixel.
    """
    x = images(2, (3, 4, 2))
    x[:, 0] = x[:, :, 0] = 0
    trained = mn.Conv2d(5, 1, w_std=0.7, b_std=0.3, b_init="zeros")
    pool = mn.AvgPool(1, stride=2, padding="same")
    spec = mn.Sequential(mn.Conv2d(5, 1, w_std=0.7), phi, pool, trained, phi, end, D)
    assert max(image_errors(an.kernel(spec).both(x), image_kernels(spec, x))) < 1e-13


@pytest.mark.parametrize("end", [(mn.Flatten(),), (mn.GlobalAvgPool(), mn.Dense(4), mn.ReLU())], ids=["flat", "pooled"])
def test_images_of_no_variance_have_kernels_of_exact_zeros(end: tuple[mn.spec.Layer, ...]) -> None:
    """Kernels of a black image without biases, and of windows that contain only padding, are exactly 0."""
    black = images(3, (4, 4, 2)) * np.array([1.0, 0.0, 1.0])[:, None, None, None]
    plain, strided = mn.Conv2d(4, 3), mn.Conv2d(4, 1, stride=4, padding=1)
    for layers, x, zero in ((plain, black, [1]), (strided, images(2, (2, 2, 2)), [0, 1])):
        kernel = an.kernel(mn.Sequential(layers, mn.ReLU(), plain, mn.ReLU(), *end, mn.Dense(1)))
        for k, d in zip(kernel.both(x), kernel.diag(x)):
            assert np.all(k[zero] == 0)
            assert np.all(d[zero] == 0)
            np.testing.assert_allclose(np.diagonal(k), d, rtol=1e-12)


def names_of_the_bright(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the one image that overflows is named, at any index in x1 or x2, in tiles of two images."""
    monkeypatch.setattr(engine, "images_per_tile", lambda plan, n: 2)
    body = [mn.Conv2d(3, w_std=1e49, b_std=1e40), mn.ReLU()]
    for pool in ((), (mn.AvgPool(2),)):
        kernel = an.kernel(mn.Sequential(*body * 2, *pool, *body, mn.Flatten()))
        for n in range(5):
            x = images(5, (2, 2, 1))
            x[n] *= 1e5
            for arrays, name in (((x,), f"x1[{n}]"), ((images(3, (2, 2, 1), 1), x), f"x2[{n}]")):
                with pytest.raises(ValueError, match=re.escape(name) + " is out of range"):
                    kernel.nngp(*arrays)


def test_an_image_that_overflows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    names_of_the_bright(monkeypatch)
    right = Examples.called
    monkeypatch.setattr(Examples, "called", lambda self, k: right(self, k + 1))
    with pytest.raises(AssertionError):
        names_of_the_bright(monkeypatch)
