"""Test kernels per pixel against extended precision and finite networks, and their means against image kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.images import engine, pixel_pairs
from analytic.images.memory import FieldLayout, Workspace
from analytic.images.pixel_pairs import Square
from tests.kit.montecarlo import assert_mean
from tests.kit.oracles_kernels import Long, through

Array = np.ndarray[Any, Any]

ONE = slice(0, 1)


def conv(n: int = 4, **how: Any) -> mn.Conv2d:
    return mn.Conv2d(n, 3, w_std=1.4, b_std=0.3, **how)


SPECS = {
    "windows": mn.Sequential(conv(), mn.ReLU(), conv()),
    "strides": mn.Sequential(conv(), mn.ReLU(), conv(stride=2)),
    "pooling": mn.Sequential(conv(), mn.Erf(), mn.AvgPool(2, stride=1, padding="same"), conv(), mn.ReLU()),
    "branches": mn.Sequential(conv(padding="circular"), mn.Residual(mn.Sequential(mn.ReLU(), conv()))),
    "one pixel": mn.Sequential(mn.Conv2d(4, (4, 3), padding="valid"), mn.ReLU(), mn.Conv2d(2, 1)),
}


def images() -> Array:
    """Return five images, of which two are opposite and one is black."""
    x = np.random.default_rng(0).standard_normal((5, 4, 3, 2))
    x[1], x[2] = -x[0], 0
    return x


def exact(spec: mn.Sequential, x: Array) -> tuple[Array, ...]:
    """Return K and Theta of x, (N, N, *grid, *grid), in extended precision."""
    pixels = x.reshape(len(x), -1, x.shape[-1]).astype(Long)
    K = np.tensordot(pixels, pixels, (2, 2)) / Long(x.shape[-1])
    K, Theta, grid = through(spec.layers, K, 0 * K, x.shape[1:-1])
    return tuple(np.moveaxis(v, 2, 1).reshape((len(x),) * 2 + grid + grid) for v in (K, Theta))


@pytest.mark.parametrize("name", SPECS)
def test_every_pair_of_pixels_is_right(name: str) -> None:
    """Kernels of pixels are accurate to 1e-14 (NTK of "pooling": 1e-9). `equal=True` and means agree to 1e-8."""
    x, spec = images(), SPECS[name]
    k, pooled = an.kernel(spec), an.kernel(mn.Sequential(*spec, mn.GlobalAvgPool()))
    for kind, want in zip(("nngp", "ntk"), exact(spec, x), strict=True):
        whole, beside, equal = (
            getattr(k.pixels(*both, equal=alone), kind)
            for both, alone in (((x,), False), ((x[:2], x[2:]), False), ((x,), True))
        )
        assert whole.shape == want.shape
        most = float(want.max())
        digits = 1e-9 if (kind, name) == ("ntk", "pooling") else 1e-14  # the oracle's error at angles of equal pixels
        np.testing.assert_allclose(whole, want.astype(float), rtol=0, atol=digits * most)
        np.testing.assert_allclose(beside, whole[:2, 2:], rtol=0, atol=1e-14 * most)
        np.testing.assert_allclose(equal, np.einsum("nmabab->nmab", whole), rtol=0, atol=1e-8 * most)
        np.testing.assert_allclose(equal.mean((2, 3)), getattr(k, kind)(x), rtol=0, atol=1e-8 * most)
        np.testing.assert_allclose(whole.mean((2, 3, 4, 5)), getattr(pooled, kind)(x), rtol=0, atol=1e-8 * most)


def check_networks() -> None:
    """Over networks with one hidden layer of any width, the mean kernels of pixels equal `Kernel.pixels`."""
    body, x, E = mn.Sequential(conv(3), mn.ReLU(), conv(2, stride=2)), images()[3:], 1500
    net = mn.Network(mn.Sequential(*body, mn.Flatten()), x.shape[1:])
    theta = net.init(np.random.default_rng(0), ensemble=E)
    f = np.asarray(net(theta, x)).reshape((E, 2, 2, 2, 2))  # 2 x 2 pixels, two channels
    K = np.einsum("enhwc,emijc->enmhwij", f, f) / 2
    full = np.asarray(mn.ntk_full(net, theta, x)).reshape((E, 2, 2, 2, 2, 2, 2, 2, 2))
    both = an.kernel(body).pixels(x)
    assert_mean("K of pixels", K, np.asarray(both.nngp))
    assert_mean("Theta of pixels", np.einsum("enhwcmijc->enmhwij", full) / 2, np.asarray(both.ntk))


def test_networks_have_them_on_average() -> None:
    check_networks()


@pytest.mark.parametrize("wrong", ["the other pixel first", "without the last layer's weights"])
def test_an_error_is_refused_by_networks(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if wrong == "the other pixel first":
        right = engine.ImageEngine.ends
        monkeypatch.setattr(engine.ImageEngine, "ends", lambda self, field, values: right(self, field, values)[:, ::-1])
    else:
        monkeypatch.setattr(engine, "add_pending", lambda field, half: None)
    with pytest.raises(AssertionError, match="of pixels: z ="):
        check_networks()


def test_sequences_single_precision_and_nothing() -> None:
    x = images()[:, 0]
    k = an.kernel(mn.Sequential(mn.Conv1d(4, 3, b_std=0.2), mn.GELU(), mn.Conv1d(4, 2)))
    whole = k.pixels(x)
    assert (whole.ntk.shape, k.pixels(x, equal=True).ntk.shape) == ((5, 5, 3, 3), (5, 5, 3))
    for got, want in zip(k.pixels(x.astype(np.float32)), whole, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * want.max())
    assert k.pixels(x[:0], x).nngp.shape == (0, 5, 3, 3)


def test_blocks_of_pixels_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that tiles of one image and of two images give the kernel of a single tile."""
    k, x = an.kernel(SPECS["pooling"]), images()
    whole = k.pixels(x)
    for size in (12, 24):
        monkeypatch.setattr(engine, "NUMBERS_IN_TILE", size)
        for got, want in zip(k.pixels(x), whole, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-8)


def test_what_cannot_be_is_said() -> None:
    x = images()
    k = an.kernel(SPECS["strides"])
    with pytest.raises(MemoryError, match=r"2 kernel\(s\) of 1 x 20 x 20 in float64 need"):
        k.pixels(x, memory=1000)
    for end in (mn.Flatten(), mn.GlobalAvgPool()):
        with pytest.raises(ValueError, match="expects a network that ends in pixels"):
            an.kernel(mn.Sequential(conv(), end)).pixels(x)
    with pytest.raises(mn.UnsupportedLayer, match="does not know the masks of Dropout"):
        an.kernel(mn.Sequential(conv(), mn.Dropout(0.5))).pixels(x)


@pytest.mark.parametrize(("n", "width"), [(1, 5), (7, 3), (9, 200), (100, 31), (1000, 1)])
def test_pieces_stay_in_cache(n: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line is in one piece. The number of pieces is the smallest for which a piece fits in cache, up to a line."""
    monkeypatch.setattr(pixel_pairs, "BYTES_PER_PIECE", 800)
    field = Square(FieldLayout(np, np.float64, False), Workspace(np, np.float64), ONE, ONE, (1, 1), asked=False)
    found = [range(n)[piece] for piece in field.split(n, width)]
    assert [line for lines in found for line in lines] == list(range(n))
    assert 8 * width * (max(map(len, found)) - 1) < 800
    assert len(found) <= max(1, -(-8 * n * width // 800))
