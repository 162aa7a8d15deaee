"""Steps of image networks: which are none, and which average."""

from __future__ import annotations

import numpy as np
import pytest

import analytic as an
import minintk as mn

X = np.random.default_rng(0).standard_normal((3, 3, 4, 2))
DENSE = mn.Dense(1, b_std=0.2)


def test_one_pixel_that_is_flattened_is_that_pixel() -> None:
    """Behind an activation, as it is a spec's layer and not its size that is refused before one."""
    whole, phi = mn.Conv2d(4, (3, 4), padding="valid", b_std=0.3), mn.ReLU()
    one, other = (
        an.kernel(mn.Sequential(whole, phi, end, DENSE)).both(X) for end in (mn.Flatten(), mn.GlobalAvgPool())
    )
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


@pytest.mark.parametrize("size", [1, 3])
def test_windows_of_one_pixel_average_nothing(size: int) -> None:
    """Poolings that read every pixel once alone are none, in size and stride; those with strides are not."""
    body, end = (mn.Conv2d(4, 3), mn.ReLU()), (mn.Conv2d(4, 3), mn.Erf(), mn.Flatten(), DENSE)
    plain = an.kernel(mn.Sequential(*body, *end)).both(X)
    pooled = an.kernel(mn.Sequential(*body, mn.AvgPool(size, stride=1, padding="same"), *end)).both(X)
    skipped = an.kernel(mn.Sequential(*body, mn.AvgPool(1, stride=2), *end)).both(X)
    for a, b, c in zip(plain, pooled, skipped, strict=True):
        assert np.allclose(a, b, rtol=1e-13, atol=0) == (size == 1)
        assert not np.allclose(a, c, rtol=1e-3, atol=0)


@pytest.mark.parametrize("by", [mn.NTK(), mn.Standard(), mn.PyTorch()], ids=repr)
def test_a_window_of_the_whole_image_is_a_dense_layer(by: mn.spec.parametrization.Parametrization) -> None:
    """Its fan-in is that of all its weights, whatever a parametrization makes of it."""
    conv = mn.Sequential(mn.Conv2d(4, (3, 4), padding="valid", b_std=0.3), mn.ReLU(), mn.Flatten(), DENSE)
    dense = mn.Sequential(mn.Dense(4, b_std=0.3), mn.ReLU(), DENSE)
    for a, b in zip(an.kernel(conv, by).both(X), an.kernel(dense, by).both(X.reshape(3, 24)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
