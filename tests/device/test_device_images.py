"""Infinite convolutional kernels on every array library: NumPy's values, the caller's library and dtype."""

from __future__ import annotations

import numpy as np
import pytest
from arrays_under_test import LIBRARIES, namespace

import analytic as an
import minintk as mn
from minintk.arrays import array_namespace, library, to_host, to_library

CONV = mn.Conv2d(5, 3, w_std=1.4, b_std=0.2)
SPECS = {
    "flatten": mn.Sequential(CONV, mn.ReLU(), CONV, mn.LayerNorm(), mn.LeakyReLU(0.2), mn.Flatten(), mn.Dense(1)),
    "pool": mn.Sequential(CONV, mn.ReLU(), mn.Conv2d(5, (2, 3), stride=(2, 1)), mn.GlobalAvgPool(), mn.Dense(1)),
    "average": mn.Sequential(CONV, mn.Erf(), mn.AvgPool(2), CONV, mn.Tanh(), mn.GlobalAvgPool(), mn.Dense(1)),
    "residual": mn.Sequential(CONV, mn.Residual(mn.Sequential(mn.ReLU(), CONV)), mn.GlobalAvgPool(), mn.Dense(1)),
    "circular": mn.Sequential(mn.Conv2d(5, 3, padding="circular"), mn.Abs(), mn.Flatten(), mn.Dense(1)),
}


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("where", LIBRARIES)
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
