"""Test that infinite-width convolutional kernels equal NumPy's, in the library and dtype of the inputs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.images import engine
from minintk.arrays import array_namespace, library, to_host, to_library
from tests.kit.arrays_under_test import LIBRARIES, namespace
from tests.kit.standin import counting
from tests.kit.thinned import thinned

CONV = mn.Conv2d(5, 3, w_std=1.4, b_std=0.2)
SPECS = {
    "flatten": mn.Sequential(
        CONV, mn.ReLU(), CONV, mn.LayerNorm(axes=(-3, -1)), mn.LeakyReLU(0.2), mn.Flatten(), mn.Dense(1)
    ),
    "pool": mn.Sequential(CONV, mn.ReLU(), mn.Conv2d(5, (2, 3), stride=(2, 1)), mn.GlobalAvgPool(), mn.Dense(1)),
    "average": mn.Sequential(
        CONV, mn.Erf(), mn.AvgPool(2, padding="same", normalize_edges=True), CONV, mn.Tanh(), mn.GlobalAvgPool(),
        mn.Dense(1),
    ),
    "residual": mn.Sequential(CONV, mn.Residual(mn.Sequential(mn.ReLU(), CONV)), mn.GlobalAvgPool(), mn.Dense(1)),
    "attention": mn.Sequential(
        mn.Conv2d(5, 3), mn.ReLU(), mn.GlobalSelfAttention(5, masked=True), mn.ReLU(), mn.MaskedAvgPool(), mn.Dense(1)
    ),
    "branches": mn.Sequential(
        CONV, mn.Concat(mn.Product(CONV, mn.Identity()), mn.Scale(0.5), CONV), mn.Dropout(0.3), CONV, mn.ReLU(),
        mn.GlobalAvgPool(), mn.Dense(1),
    ),
    "formulas": mn.Sequential(
        CONV, mn.Erf(), CONV, mn.GELU(), CONV, mn.Sin(1.0, 0.8, 0.3), CONV, mn.RectifiedMonomial(2), CONV,
        mn.Gaussian(1.0, -0.3), mn.GlobalAvgPool(), mn.Dense(1),
    ),
    "circular": mn.Sequential(mn.Conv2d(5, 3, padding="circular"), mn.Abs(), mn.Flatten(), mn.Dense(1)),
}  # fmt: skip


@pytest.mark.parametrize(("where", "dtype", "name"), thinned(product(LIBRARIES, ("float32", "float64"), SPECS)))
def test_infinite_convolutional_kernels(where: str, dtype: str, name: str) -> None:
    x = np.random.default_rng(0).standard_normal((5, 4, 5, 2)).astype(dtype)
    kernel, xp = an.kernel(SPECS[name]), namespace(where)
    there = to_library(x, xp)
    pairs = [
        (kernel.both(there), kernel.both(x)),
        (kernel.both(there[:2], there[2:]), kernel.both(x[:2], x[2:])),
        (kernel.diag(there), kernel.diag(x)),
    ]
    for got, want in pairs:
        for a, b in zip(got, want):
            assert library(array_namespace(a)) == library(xp)
            assert str(a.dtype) == dtype
            np.testing.assert_allclose(to_host(a), b, rtol={"float32": 1e-4, "float64": 1e-12}[dtype])


@pytest.mark.parametrize("where", LIBRARIES)
def test_pixel_by_pixel(where: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5, 2))
    kernel = an.kernel(mn.Sequential(*SPECS["average"].layers[:4]))
    there = to_library(x, namespace(where))
    for equal in (False, True):
        for got, want in zip(kernel.pixels(there, equal=equal), kernel.pixels(x, equal=equal)):
            assert library(array_namespace(got)) == library(namespace(where))
            np.testing.assert_allclose(to_host(got), want, rtol=1e-12)


# ------------------------------------------------------------------------ kernels of each image with itself, in batches

HALVED = mn.Sequential(
    CONV, mn.ReLU(), mn.AvgPool(2, padding="same"), CONV, mn.Residual(mn.Sequential(mn.LeakyReLU(0.2), CONV)),
    mn.LayerNorm(), mn.Conv2d(5, (3, 2), stride=(2, 1), padding="circular"), mn.Abs(), mn.GlobalAvgPool(), mn.Dense(1),
)  # fmt: skip


@pytest.mark.parametrize("where", LIBRARIES)
@pytest.mark.parametrize("batch", [2])
def test_images_meet_themselves_in_batches(where: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results do not depend on the batch size. One image is black, and one is the negative of another."""
    x = np.random.default_rng(0).standard_normal((7, 5, 4, 2))
    x[2], x[5] = 0, -x[1]
    kernel, there = an.kernel(HALVED), to_library(x, namespace(where))
    monkeypatch.setattr(engine, "BYTES_PER_GPU_BATCH", batch * 20 * 20 * 8)
    for got, want in ((kernel.diag(there), kernel.diag(x)), (kernel.both(there), kernel.both(x))):
        for a, b in zip(got, want):
            np.testing.assert_allclose(to_host(a), b, rtol=1e-12)


@pytest.mark.skipif("standin" not in LIBRARIES, reason="counts are the stand-in's")
def test_a_batch_takes_no_more_launches_than_an_image() -> None:
    x = to_library(np.random.default_rng(0).standard_normal((40, 5, 4, 2)), namespace("standin"))
    kernel = an.kernel(HALVED)
    with counting() as one:
        kernel.diag(x[:1])
    with counting() as many:
        kernel.diag(x)
    assert many.launches <= one.launches + 40  # some shapes need additional copies
    assert many.synchronisations == one.synchronisations


def test_an_image_of_a_batch_is_called_by_its_number() -> None:
    x = np.random.default_rng(0).standard_normal((9, 5, 4, 2))
    x[7] *= 1e150
    with pytest.raises(ValueError, match=r"x\[7\]"):
        an.kernel(HALVED).diag(to_library(x, namespace(LIBRARIES[-1])))
