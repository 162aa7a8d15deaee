"""Test kernels of infinitely wide convolutional networks against reference values, brute force and laws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import analytic as an
import minintk as mn
from analytic.images import engine
from analytic.images.pixel_pairs import BYTES_PER_PIECE
from minintk.spec.shapes import out_shape
from tests.analytic.images.test_plan import CONV, FLAT, POOL, blank, planned
from tests.kit.golden import IMAGES, VECTORS, XF1, XF2, XI1, XI2
from tests.kit.oracles_kernels import image_errors, image_kernels

Array = Any

R2 = 2**0.5
D = mn.Dense(1, w_std=R2, b_std=0.1)


def conv(**how: Any) -> mn.Conv2d:
    return mn.Conv2d(6, 3, w_std=R2, b_std=0.1, **how)


# ------------------------------------------------------------------------------------ reference values


@pytest.mark.parametrize("name", IMAGES)
def test_reference(name: str) -> None:
    spec, values = IMAGES[name]
    k, t = an.kernel(spec).both(XI1, XI2)
    np.testing.assert_allclose([k[0, 0], k.sum(), t[0, 0], t.sum()], values, rtol=0, atol=1e-9)


def test_reference_of_layer_norm() -> None:
    x1, x2 = XF1, XF2
    spec, values = VECTORS["layer norm"]
    k, t = an.kernel(spec).both(x1, x2)
    np.testing.assert_allclose([k[0, 0], k.sum(), t[0, 0], t.sum()], values, rtol=0, atol=1e-9)
    on_pixels = mn.Sequential(mn.Conv2d(6, 1, w_std=R2, b_std=0.1), *spec.layers[1:3], mn.Flatten(), D)
    got = an.kernel(on_pixels).both(x1[:, None, None], x2[:, None, None])
    for one, other in zip(got, (k, t)):
        np.testing.assert_allclose(one, other, rtol=1e-13)


# ----------------------------------------------------------------------------------------- brute force

CLOSED = (mn.ReLU(), mn.ReLU(), mn.LeakyReLU(0.2), mn.Abs(), mn.Erf(), mn.Sin())


@st.composite
def windows(draw: st.DrawFn, shape: tuple[int, ...], pool: bool = False) -> mn.spec.Layer:
    """Draw a convolution or pooling that fits the shape.

    Windows can be larger than the image, and strides need not divide the image's size.
    """
    two = len(shape) == 3
    size = st.integers(1, 4)
    padding: Any = draw(st.sampled_from(["same", "valid", "circular", 1, ((1, 0), (0, 2)) if two else ((2, 0),)]))
    kernel: Any = draw(st.tuples(size, size) if two else size)
    stride = draw(st.sampled_from([1, 1, 2, 3]))
    if pool:
        layer: mn.spec.Layer = mn.AvgPool(
            draw(st.sampled_from([1, 2, 3])), stride=draw(st.sampled_from([None, 1, 2])), padding=padding,
            normalize_edges=draw(st.booleans()),
        )  # fmt: skip
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
    """Draw a network of convolutions, activations, poolings, normalisations and sums.

    The network's output is flattened, pooled or an image.
    """
    layers: list[mn.spec.Layer] = []
    for _ in range(draw(st.integers(1, 3))):
        block: list[mn.spec.Layer] = [draw(windows(shape))]
        if draw(st.integers(0, 4)) == 0:
            pixels = draw(st.sampled_from([(), (-2,), tuple(range(-len(shape), -1))]))
            block.append(mn.LayerNorm(eps=0.1, axes=(*pixels, -1)))
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
    """Draw a spec and three images. Two can be (nearly) equal, one can be black, or all can have black borders."""
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
    """The NNGP and NTK of images equal those computed from the covariances of all pixels, propagated layer by layer."""
    spec, x = case
    try:
        got = an.kernel(spec).both(x)
    except mn.UnsupportedLayer:
        return
    errors = image_errors(got, image_kernels(spec, x))
    collinear = x.shape[-1] == 1  # pixels on one line: angles of 0 are resolved to the root of eps
    bounds = (2e-8, 2e-5 if collinear else 2e-8)
    assert all(e < b for e, b in zip(errors, bounds)), f"NNGP, NTK off by {errors[0]:.1e}, {errors[1]:.1e}"


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40)
@given(image_cases())
def test_brute_force(case: tuple[mn.Sequential, Array]) -> None:
    law_brute_force(case)


# -------------------------------------------------------------------------------------------- the laws


def images(n: int, shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((n, *shape))


def law_matrix(case: tuple[mn.Sequential, Array]) -> None:
    """Image kernels are symmetric and PSD, their diagonal is `diag`, and blocks of k(x, x) equal k(x1, x2)."""
    spec, x = case
    kernel = an.kernel(spec)
    for k, d, block in zip(kernel.both(x), kernel.diag(x), kernel.both(x[:2], x[1:])):
        scale = np.abs(k).max() + 1e-300
        np.testing.assert_array_equal(k, k.T)
        assert np.linalg.eigvalsh(k).min() > -1e-7 * scale
        np.testing.assert_allclose(np.diagonal(k), d, rtol=1e-12, atol=1e-12 * scale)
        block[1, 0] += 0 if abs(block[1, 0] - d[1]) > 2e-8 * scale else d[1] - block[1, 0]  # pooling rounds
        np.testing.assert_allclose(k[:2, 1:], block, rtol=1e-12, atol=1e-12 * scale)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40)
@given(image_cases())
def test_matrix(case: tuple[mn.Sequential, Array]) -> None:
    law_matrix(case)


def test_opposite_windows_keep_their_digits() -> None:
    """Check the NNGP against brute force at angles a near pi, which a rounded sin(a/2)^2 determines only to 1e-8."""
    x = images(2, (3, 4, 1))
    x = np.concatenate([x, -x, -x + 1e-5 * x[::-1]])
    spec = mn.Sequential(mn.Conv2d(4, w_std=1.4), mn.Abs(), mn.Conv2d(4), mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1))
    assert image_errors(an.kernel(spec).both(x), image_kernels(spec, x))[0] < 1e-14


def test_black_images_without_bias_have_kernels_of_zero() -> None:
    spec = mn.Sequential(mn.Conv2d(4, 1, w_std=0.7), mn.ReLU(), mn.Flatten(), D)
    none = mn.Sequential(mn.Conv2d(4, 1, w_std=0.7), mn.ReLU(), mn.Flatten(), mn.Dense(1))
    nngp, ntk = an.kernel(none).both(np.zeros((3, 1, 1, 2)))
    assert not nngp.any()
    assert not ntk.any()
    np.testing.assert_allclose(an.kernel(spec).nngp(np.zeros((2, 1, 1, 2))), 0.01, rtol=1e-15)


def test_float32_of_images_in_general_position() -> None:
    x = images(4, (8, 8, 3)).astype(np.float32)
    for end in (mn.Flatten(), mn.GlobalAvgPool()):
        spec = mn.Sequential(*[conv(), mn.ReLU()] * 4, end, D)
        for k, exact in zip(an.kernel(spec).both(x), an.kernel(spec).both(x.astype(np.float64))):
            np.testing.assert_allclose(k, exact, rtol=3e-6, atol=0)


@pytest.mark.parametrize("end", [mn.Flatten(), mn.GlobalAvgPool()], ids=["flatten", "pool"])
def test_windows_of_one_row_and_of_one_column(end: mn.spec.Layer) -> None:
    """Compare windows of one row or of one column with brute force on square images, where shapes hide swapped axes."""
    x = images(3, (5, 5, 2))
    hidden = [mn.Conv2d(4, kernel, w_std=1.4, b_std=0.3) for kernel in ((3, 3), (1, 3), (3, 3), (3, 1), (1, 3))]
    spec = mn.Sequential(*[layer for conv in hidden for layer in (conv, mn.ReLU())], end, D)
    assert max(image_errors(an.kernel(spec).both(x), image_kernels(spec, x))) < 1e-13


@pytest.mark.parametrize("end", [mn.Flatten(), mn.GlobalAvgPool()], ids=["flatten", "pool"])
@pytest.mark.parametrize("black", [2, 6], ids=["an image", "all images"])
def test_black_images_in_float32(black: int, end: mn.spec.Layer) -> None:
    """Compare black images in float32 with float64. Values left over in a tile can underflow when squared."""
    x = images(6, (6, 6, 2)).astype(np.float32)
    x[:, :3] = 0
    x[6 - black :] = 0
    wrapped = mn.Conv2d(4, (2, 3), padding="circular")
    spec = mn.Sequential(wrapped, mn.ReLU(), mn.Conv2d(4, 2), mn.ReLU(), wrapped, mn.LeakyReLU(0.1), end, mn.Dense(1))
    for k, exact in zip(an.kernel(spec).both(x), an.kernel(spec).both(x.astype(np.float64))):
        np.testing.assert_allclose(k, exact, rtol=0, atol=1e-6 * float(exact.max()))


@pytest.mark.parametrize("phi", [mn.Erf(), mn.GELU()], ids=["erf", "gelu"])
def test_float32_of_a_black_image_next_to_bright_ones(phi: mn.spec.Layer) -> None:
    """In float32, dividing a distance by a product of norms would overflow where one norm is 0.

    Warnings are errors in tests, so an overflow fails this test.
    """
    x = 1e5 * images(3, (6, 6, 2)).astype(np.float32)
    x[0] = 0
    kernel = an.kernel(mn.Sequential(mn.Conv2d(4, 3), phi, mn.Conv2d(4, 3), phi, mn.Flatten(), mn.Dense(1)))
    for k, exact in zip(kernel.both(x), kernel.both(x.astype(np.float64))):
        assert not k[0].any()
        np.testing.assert_allclose(k, exact, rtol=0, atol=1e-6 * float(exact.max()))


def test_grids_that_take_equal_room_do_not_share_views() -> None:
    """Grids such as (2, 3) and (3, 3) reuse one array, so each grid must have its own view of this array."""
    across, along = mn.Conv2d(4, (3, 1), w_std=R2), mn.Conv2d(4, (1, 3), w_std=R2)
    for grid, taller in (
        ((2, 3), (along, mn.Conv2d(4, (2, 1), padding=((1, 1), (0, 0))), along)),
        ((2, 5), (across, mn.Conv2d(4, (1, 2), padding="valid"), along, across)),
        ((2, 4), (across, mn.Conv2d(4, (1, 2), padding=((0, 0), (1, 1))), across, along)),
    ):
        spec = mn.Sequential(*(part for layer in taller for part in (layer, mn.ReLU())), mn.Flatten(), D)
        x = images(3, (*grid, 2))
        exact = image_kernels(spec, x)
        nngp = an.kernel(spec).nngp(x)
        assert max(image_errors((nngp, an.kernel(spec).ntk(x)), exact)) < 1e-13
        assert max(image_errors(an.kernel(spec).both(x), exact)) < 1e-13


def test_square_images_of_one_size_before_and_after_pooling() -> None:
    """Kernels are correct, although sums before and after a pooling reuse arrays of equal shape."""
    pool = mn.AvgPool(2, stride=1, padding="same")
    skip = mn.Residual(mn.Sequential(pool, conv(), mn.ReLU(), conv()))
    x = images(3, (4, 4, 2))
    for body in ((conv(), pool), (conv(), skip, pool, conv())):
        spec = mn.Sequential(*body, mn.Flatten(), D)
        assert max(image_errors(an.kernel(spec).both(x), image_kernels(spec, x))) < 1e-13


@pytest.mark.parametrize("end", [mn.Flatten(), mn.GlobalAvgPool()], ids=["flatten", "pool"])
def test_many_images_in_pieces(end: mn.spec.Layer) -> None:
    """Kernels of images in several batches equal those of separate blocks and of single pairs."""
    x = images(21, (4, 5, 2)).astype(np.float32)
    for phi in (mn.ReLU(), mn.Erf()):
        kernel = an.kernel(mn.Sequential(conv(), phi, conv(padding=1), end, D))
        whole, across = kernel.ntk(x), kernel.ntk(x[:9], x[9:])
        np.testing.assert_allclose(whole[:9, 9:], across, rtol=0, atol=1e-6 * float(across.max()))
        for i, j in ((0, 20), (3, 3), (17, 18), (8, 15)):
            np.testing.assert_allclose(whole[i, j], kernel.ntk(x[i : i + 1], x[j : j + 1])[0, 0], rtol=2e-6)


@pytest.mark.parametrize("scale", [1.0, 1e5, 1e60])
@pytest.mark.parametrize(
    ("phi", "sign"),
    [(mn.Erf(), -1), (mn.Sin(), -1), (mn.Cos(), 1), (mn.Gaussian(1.0, -0.5), 1)],
    ids=["erf", "sin", "cos", "gaussian"],
)
def test_opposite_images_of_any_size(phi: mn.spec.Layer, sign: int, scale: float) -> None:
    """Both kernels of x with -x equal `sign` times those of x with itself.

    Despite rounding, the pixels remain exactly opposite at every scale.
    """
    x = images(1, (5, 4, 2)) * scale
    spec = mn.Sequential(mn.Conv2d(4, 3), phi, mn.Conv2d(4, 3), phi, mn.GlobalAvgPool(), mn.Dense(1))
    for k in an.kernel(spec).both(np.concatenate((x, -x))):
        np.testing.assert_allclose(k[0, 1], sign * k[0, 0], rtol=1e-12)


def test_an_inexact_quadrature_warns() -> None:
    """Check that a saturated tanh causes a warning, and that an unsaturated tanh does not."""
    x = images(3, (3, 4, 2))
    kernel, exact = (an.kernel(mn.Sequential(mn.Conv2d(6, w_std=w), mn.Tanh(), mn.Flatten(), D)) for w in (300.0, 1.0))
    with pytest.warns(UserWarning, match="is by quadrature and exact to .* only"):
        kernel.both(x)
    exact.both(x)


def test_the_warning_points_to_the_caller() -> None:
    tanh = mn.Sequential(mn.Conv2d(6, w_std=300.0), mn.Tanh())
    kernel = an.kernel(mn.Sequential(tanh, mn.Flatten(), D))
    vectors = an.kernel(mn.Sequential(mn.Dense(6, w_std=300.0), mn.Tanh(), D))
    calls = (
        lambda: kernel.both(images(3, (3, 4, 2))), lambda: kernel.nngp(images(3, (3, 4, 2))),
        lambda: an.kernel(tanh).pixels(images(3, (3, 4, 2))), lambda: vectors.ntk(images(3, (4,))),
    )  # fmt: skip
    for call in calls:
        with pytest.warns(UserWarning, match="is by quadrature and exact to .* only") as found:
            call()
        assert [Path(w.filename).name for w in found] == ["test_engine.py"]


def test_activations_by_quadrature() -> None:
    """For small inputs, kernels of tanh by quadrature equal those of a linear network.

    With GELU and softplus, kernels of one pixel equal those of vectors.
    """
    x = images(3, (3, 4, 2))
    for end in (mn.Flatten(), mn.GlobalAvgPool()):
        small = 1e-4 * x
        tanh = an.kernel(mn.Sequential(conv(), mn.Tanh(), end)).both(small)
        linear = an.kernel(mn.Sequential(mn.Conv2d(6, 3, w_std=R2), end)).both(small)
        plain = an.kernel(mn.Sequential(mn.Conv2d(6, 3, w_std=R2), mn.Tanh(), end)).both(small)
        for got, want in zip(plain, linear):
            np.testing.assert_allclose(got, want, rtol=1e-6)
        assert tanh.nngp[0, 0] > 1.1 * plain.nngp[0, 0]
        for phi in (mn.GELU(), mn.Softplus()):
            one_pixel = an.kernel(mn.Sequential(mn.Conv2d(6, 1, w_std=R2, b_std=0.1), phi, end, D)).both(x[:, :1, :1])
            vector = an.kernel(mn.Sequential(mn.Dense(6, w_std=R2, b_std=0.1), phi, D)).both(x[:, 0, 0])
            for got, want in zip(one_pixel, vector):
                np.testing.assert_allclose(got, want, rtol=1e-10)


def test_sequences_are_images_of_one_row() -> None:
    x = images(3, (6, 2))
    one = an.kernel(mn.Sequential(mn.Conv1d(4, 3, b_std=0.1), mn.ReLU(), mn.AvgPool(2), mn.Flatten(), D))
    two = an.kernel(mn.Sequential(mn.Conv2d(4, (1, 3), b_std=0.1), mn.ReLU(), mn.AvgPool((1, 2)), mn.Flatten(), D))
    for a, b in zip(one.both(x), two.both(x[:, None])):
        np.testing.assert_array_equal(a, b)


def test_shifted_images_and_circular_networks() -> None:
    """With circular padding and global pooling, a shifted image has the same kernel as the original."""
    x = images(2, (4, 5, 3))
    moved = np.roll(x, (1, 2), axis=(1, 2))
    spec = mn.Sequential(*[conv(padding="circular"), mn.ReLU()] * 2, mn.GlobalAvgPool(), D)
    for a, b, c in zip(an.kernel(spec).both(x), an.kernel(spec).both(x, moved), an.kernel(spec).both(moved)):
        np.testing.assert_allclose(a, b, rtol=1e-12)
        np.testing.assert_allclose(a, c, rtol=1e-12)
    flat = mn.Sequential(*spec.layers[:-2], mn.Flatten(), D)
    assert np.abs(an.kernel(flat).nngp(x, moved) - an.kernel(flat).nngp(x)).max() > 0.1


# ---------------------------------------------------------------------------------- degenerate pairs


@pytest.mark.parametrize("end", [mn.Flatten(), mn.GlobalAvgPool()], ids=["flatten", "pool"])
def test_degenerate_images(end: mn.spec.Layer) -> None:
    """Compare kernels of equal, shifted (by a pixel), opposite, scaled and black images with brute force."""
    x = images(1, (4, 4, 2), seed=3)[0]
    x[0] = 0
    shifted = np.zeros_like(x)
    shifted[:, 1:] = x[:, :-1]
    batch = np.array([x, x, shifted, -x, 1e-6 * x, 1e6 * x, 0 * x, x * (1 + 1e-12)])
    for b_std in (0.0, 0.1):
        layer = mn.Conv2d(6, 3, w_std=R2, b_std=b_std)
        spec = mn.Sequential(layer, mn.ReLU(), layer, mn.ReLU(), end, mn.Dense(1))
        which = slice(None) if b_std == 0 else [0, 1, 2, 3, 6, 7]
        rows = batch[which]
        errors = image_errors(an.kernel(spec).both(rows), image_kernels(spec, rows))
        assert max(errors) < 5e-8, f"NNGP, NTK off by {errors[0]:.1e}, {errors[1]:.1e}"


def test_black_images_stay_equal_through_a_pooling() -> None:
    """Black images remain equal to one another, at any index in the batch.

    With ReLU, a rounding error e in their distance D would change Theta by about sqrt(e).
    """
    first = mn.Conv2d(4, 3, w_std=1.4, b_std=0.3)
    kernel = an.kernel(mn.Sequential(first, mn.Tanh(), mn.AvgPool(2), first, mn.ReLU(), mn.Flatten()))
    x = np.random.default_rng(0).standard_normal((8, 4, 4, 1))
    x[0] = x[1] = x[-1] = 0
    theta = kernel.ntk(x)
    np.testing.assert_allclose(theta[0, [1, -1]], theta[0, 0], rtol=1e-13)


# ------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (mn.Sequential(conv(), mn.ReLU(), mn.MaxPool(2), mn.Flatten(), D), r"MaxPool has no .* use mn\.AvgPool"),
        (mn.Sequential(conv(), mn.BatchNorm(), mn.ReLU(), mn.Flatten(), D), r"BatchNorm has no .* use mn\.LayerNorm"),
        (mn.Sequential(mn.ReLU(), conv(), mn.Flatten(), D), "ReLU acts on values that are not Gaussian"),
        (mn.Sequential(conv(), mn.Flatten(), mn.ReLU(), D), "ReLU acts on values that are not Gaussian"),
        (mn.Sequential(conv(), mn.ReLU(), mn.LayerNorm(), conv(), mn.Flatten(), D), "LayerNorm acts on features"),
        (mn.Sequential(mn.LayerNorm(), D), "LayerNorm acts on features"),
        (mn.Sequential(conv(), mn.LayerNorm(axes=(-3, -2)), mn.ReLU()), r"of one channel over its pixels stay random"),
        (mn.Sequential(conv(), mn.Residual(mn.Sequential(mn.ReLU(), mn.AvgPool(1)))), "two parts that are correlated"),
    ],
)
def test_refusals(spec: mn.Sequential, message: str) -> None:
    """Check that invalid specs are rejected before any data are passed."""
    with pytest.raises(mn.UnsupportedLayer, match=message):
        an.kernel(spec)


def test_bad_input() -> None:
    kernel = an.kernel(mn.Sequential(conv(), mn.ReLU(), mn.GlobalAvgPool(), D))
    with pytest.raises(ValueError, match="channels-last"):
        kernel.ntk(images(2, (3, 8, 8)))
    with pytest.raises(ValueError, match="expects images"):
        kernel.ntk(images(2, (8,)))
    with pytest.raises(ValueError, match="does not fit"):
        an.kernel(mn.Sequential(mn.Conv2d(4, 5, padding="valid"), mn.Flatten(), D)).ntk(images(2, (3, 3, 1)))
    with pytest.raises(ValueError, match=r"LayerNorm\(eps=0\) divides by the variance"):
        an.kernel(mn.Sequential(mn.Conv2d(4), mn.LayerNorm(eps=0.0), mn.Flatten(), D)).ntk(0 * images(2, (3, 3, 1)))
    with pytest.raises(MemoryError, match=r"need .* GB to work in, .*are allowed.*pairs: pool earlier"):
        kernel.ntk(images(2, (32, 32, 1)), memory=10**6)
    assert kernel.ntk(images(0, (4, 4, 3))).shape == (0, 0)


NESTED = mn.Residual(mn.Sequential(mn.ReLU(), CONV, mn.Residual(mn.Sequential(mn.ReLU(), CONV))))


@pytest.mark.parametrize(("end", "number"), [(FLAT, 1), (POOL, 30)], ids=["flat", "pooled"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_memory_of_fields_is_of_whole_ones_and_of_pieces(
    end: mn.spec.Layer, number: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step needs memory for four whole fields, two more per enclosing sum, and twelve pieces.

    A piece exceeds BYTES_PER_PIECE by at most a line. On a GPU, 40 more whole fields are needed instead of pieces.
    """
    for body, sums in ((mn.ReLU(), 0), (NESTED, 2)):
        x = blank(9, 6, 5, 2).astype(dtype)
        plan = planned(mn.Sequential(CONV, body, CONV, end), x)
        assert not plan.recorded
        pair = 30 * number * np.dtype(dtype).itemsize
        for pairs in (1, 10**6):
            whole = pairs * pair
            piece = min(whole, BYTES_PER_PIECE + whole // 6)
            assert engine.field_bytes(plan, pairs) == (4 + 2 * sums) * whole + 12 * piece
    monkeypatch.setattr(engine, "on_host", lambda xp: False)
    assert engine.field_bytes(plan, 10**6) == (8 + 40) * whole
