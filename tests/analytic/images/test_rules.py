"""Test rules for image networks: windows of one pixel, windows of whole images, recorded steps, and nested sums."""

from __future__ import annotations

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.images.plan import plan_images
from analytic.images.rules import depth
from analytic.recursion.requests import Examples

X = np.random.default_rng(0).standard_normal((3, 3, 4, 2))
DENSE = mn.Dense(1, b_std=0.2)


def test_one_pixel_that_is_flattened_is_that_pixel() -> None:
    """If only one pixel is left, `Flatten` and `GlobalAvgPool` after the activation give equal kernels.

    `Flatten` before an activation is rejected whatever the image size (see `test_engine.test_refusals`).
    """
    whole, phi = mn.Conv2d(4, (3, 4), padding="valid", b_std=0.3), mn.ReLU()
    one, other = (
        an.kernel(mn.Sequential(whole, phi, end, DENSE)).both(X) for end in (mn.Flatten(), mn.GlobalAvgPool())
    )
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


@pytest.mark.parametrize("size", [1, 3])
def test_windows_of_one_pixel_average_nothing(size: int) -> None:
    """Pooling with windows and strides of one pixel does not change kernels. Larger windows or strides change them."""
    body, end = (mn.Conv2d(4, 3), mn.ReLU()), (mn.Conv2d(4, 3), mn.Erf(), mn.Flatten(), DENSE)
    plain = an.kernel(mn.Sequential(*body, *end)).both(X)
    pooled = an.kernel(mn.Sequential(*body, mn.AvgPool(size, stride=1, padding="same"), *end)).both(X)
    skipped = an.kernel(mn.Sequential(*body, mn.AvgPool(1, stride=2), *end)).both(X)
    for a, b, c in zip(plain, pooled, skipped, strict=True):
        assert np.allclose(a, b, rtol=1e-13, atol=0) == (size == 1)
        assert not np.allclose(a, c, rtol=1e-3, atol=0)


@pytest.mark.parametrize("by", [mn.NTK(), mn.Standard(), mn.PyTorch()], ids=repr)
def test_a_window_of_the_whole_image_is_a_dense_layer(by: mn.spec.parametrization.Parametrization) -> None:
    """In three parametrizations, a convolution whose window is the whole image has the kernels of a dense layer."""
    conv = mn.Sequential(mn.Conv2d(4, (3, 4), padding="valid", b_std=0.3), mn.ReLU(), mn.Flatten(), DENSE)
    dense = mn.Sequential(mn.Dense(4, b_std=0.3), mn.ReLU(), DENSE)
    for a, b in zip(an.kernel(conv, by).both(X), an.kernel(dense, by).both(X.reshape(3, 24)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


CONV = mn.Conv2d(2, 3, b_std=0.2)
DEEP = mn.Residual(mn.Sequential(mn.ReLU(), CONV), shortcut=mn.Residual(mn.Sequential(mn.ReLU(), CONV)))
NONLINEAR = {
    "activation": (mn.AvgPool(2), CONV, mn.ReLU(), mn.Flatten()),
    "normalisation": (mn.AvgPool(2), CONV, mn.LayerNorm(), mn.Flatten()),
    "product": (mn.AvgPool(2), mn.Product(CONV, CONV), mn.Flatten()),
    "attention": (mn.GlobalSelfAttention(4), mn.Flatten()),
    "shortcut": (mn.AvgPool(2), CONV, mn.Residual(CONV, shortcut=mn.Sequential(mn.ReLU(), CONV)), mn.Flatten()),
    "first pooling": (mn.AvgPool(2), CONV, mn.ReLU(), mn.GlobalAvgPool()),
    "masks": (mn.Dropout(0.5), mn.Flatten()),
}
LINEAR = {
    "no pooling": (CONV, mn.ReLU(), mn.Flatten()),
    "pooling": (CONV, mn.ReLU(), mn.AvgPool(2), CONV, mn.GlobalAvgPool()),
    "sum": (CONV, mn.ReLU(), mn.AvgPool(2), mn.Residual(CONV), mn.Flatten()),
}


@pytest.mark.parametrize("name", [*NONLINEAR, *LINEAR])
def test_images_meet_themselves_first_if_something_nonlinear_mixes_their_pixels(name: str) -> None:
    """K(x, x) is recorded first for masks and attention, and for products or other nonlinear layers after a pooling."""
    spec = mn.Sequential(CONV, *(NONLINEAR | LINEAR)[name], DENSE)
    assert plan_images(an.kernel(spec)._program((4, 4, 2)), Examples(X)).recorded == (name in NONLINEAR)


def test_sums_are_as_deep_as_the_deepest_branch() -> None:
    for layers, want in (((), 0), ((mn.ReLU(),), 0), ((DEEP,), 2), ((mn.Residual(CONV), DEEP, mn.Residual(CONV)), 2)):
        assert depth(an.kernel(mn.Sequential(CONV, *layers, mn.Flatten()))._program((4, 4, 2))) == want


@pytest.mark.parametrize(
    ("layer", "steps"),
    [
        *((mn.AvgPool(1), 0), (mn.AvgPool((1, 2)), 1), (mn.AvgPool((2, 1)), 1), (mn.AvgPool(1, padding=1), 1)),
        *((mn.AvgPool(1, stride=2), 1), (mn.AvgPool(3, stride=1, padding="same"), 1)),
    ],
    ids=repr,
)
def test_a_pooling_that_reads_each_pixel_once_is_no_step(layer: mn.spec.Layer, steps: int) -> None:
    assert len(an.kernel(mn.Sequential(CONV, layer, mn.Flatten()))._program((4, 4, 2))) == steps + 2
