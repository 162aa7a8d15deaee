"""Test that products of Dense layers, split along the longer side, equal BLAS's products and do not need Numba."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minintk import threads
from minintk.fast import dense
from minintk.threads import alone
from tests.kit.small_is_large import small_is_large

Array = np.ndarray[Any, Any]


@settings(max_examples=30)
@given(st.integers(1, 70), st.integers(1, 200), st.integers(1, 192), st.sampled_from(("f4", "f8")), st.integers(0, 9))
def test_products_in_pieces_are_the_products(M: int, K: int, n: int, dtype: str, seed: int) -> None:
    """For small integer entries, y = x W, dW = x' u and dx = u W' are exact in any order of summation."""
    rng = np.random.default_rng(seed)
    x, W, u = (rng.integers(-9, 10, shape).astype(dtype) for shape in ((M, K), (K, n), (M, n)))
    for a, b in ((x, W), (x.T, u), (u, W.T)):
        out = np.full((a.shape[0], b.shape[1]), np.nan, a.dtype)
        with small_is_large():
            dense.split((a, b, out))
        np.testing.assert_array_equal(out, a @ b)


MLP = """
import sys
import numpy as np, minintk as mn
rng = np.random.default_rng(0)
x, y = rng.standard_normal((512, 8, 8, 1)).astype("f4"), np.eye(10, dtype="f4")[rng.integers(0, 10, 512)]
for spec in {networks}:
    net = mn.Network(spec, (8, 8, 1))
    theta = net.init(rng, dtype=x.dtype)
    how = dict(loss=mn.softmax_cross_entropy, rng=rng)
    spectral = mn.SpectralDescent(0.01, net.layout), mn.Muon(0.01, net.layout)
    others = mn.SGD(0.01, momentum=0.9), mn.Nesterov(0.01), mn.Adam(0.001), *(spectral if theta.size < 10**6 else ())
    for optimizer, batch in ((mn.SGD(0.01), 32), (mn.SGD(0.01), 256), *((other, 64) for other in others)):
        for _ in mn.train(net, theta, x, y, optimizer=optimizer, steps=2, batch_size=batch, **how):
            pass
    mn.fit(net, theta, x, y, optimizer=optimizer, epochs=1, batch_size=64, **how)
    mn.ntk(net, theta, x[:64])
print("numba" in sys.modules)
"""


def test_networks_of_dense_layers_load_no_numba() -> None:
    """Optimisers, `fit` and kernels do not load Numba at widths at which products are split. A convolution does."""
    pytest.importorskip("numba")
    mlps = "[mn.Sequential(mn.Flatten(), *mn.zoo.mlp(2, width, 10).layers) for width in (512, 1024)]"
    conv = "[mn.Sequential(mn.Conv2d(16, 3), mn.Conv2d(16, 3), mn.Flatten(), mn.Dense(10))]"
    for networks, loaded in ((mlps, False), (conv, True)):
        run = [sys.executable, "-c", MLP.format(networks=networks)]
        found = subprocess.run(run, capture_output=True, text=True, check=False)
        assert (found.stdout, found.returncode) == (f"{loaded}\n", 0), found.stderr


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the machine has two cores, so that the pool runs on any machine."""
    monkeypatch.setattr(threads, "cores", lambda: 2)


@pytest.mark.parametrize("shape", [(32, 900), (900, 32)], ids=["few rows", "many rows"])
@pytest.mark.parametrize("turned", [False, True], ids=["W", "W'"])
def test_a_split_product_is_the_product(shape: tuple[int, int], turned: bool, two_cores: None) -> None:
    """The pieces computed on two cores make up the whole product."""
    (m, n), rng = shape, np.random.default_rng(0)
    a, b, out = rng.standard_normal((m, 700)), rng.standard_normal((700, n)), np.full((m, n), np.nan)
    b = np.ascontiguousarray(b.T).T if turned else b
    dense.split((a, b, out), (a[:, :5], b[:5], np.empty((m, n))))
    np.testing.assert_allclose(out, a @ b, rtol=0, atol=1e-12)


def test_large_products_are_split_whether_or_not_the_cores_are_free() -> None:
    a = np.ones((600, 600))
    assert dense.large(a, a)
    assert alone(dense.large, a, a)
    assert not dense.large(a[:10, :10], a[:10])
