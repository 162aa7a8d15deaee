"""Define laws on images, and laws that compare fast networks with their plain layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import minintk as mn
from minintk import testing
from minintk.fast import conv_gram
from minintk.testing import assert_close
from minintk.threads import single_threaded_blas
from minintk.thresholds import THRESHOLDS
from tests.kit.laws import Array, X, plain, points
from tests.kit.oracles_images import convolution, loop_norm, max_pool, pooled
from tests.kit.small_is_large import small_is_large

# laws on images

IMAGE_LAYERS: tuple[mn.spec.Layer, ...] = (
    mn.Conv2d(3, 3, w_std=1.4, b_std=0.3),
    mn.Conv2d(3, (2, 4), stride=(1, 2), padding="circular"),
    mn.Conv2d(2, 2, padding=((0, 2), (1, 0)), b_std=0.5, b_init="zeros"),
    mn.AvgPool(2),
    mn.AvgPool(3, stride=2, padding="same"),
    mn.MaxPool(2),
    mn.MaxPool(3, stride=2, padding="same"),
    mn.LayerNorm(eps=0.01),
    mn.Residual(mn.Conv2d(3, 3), shortcut=mn.Conv2d(3, 1)),
)
PIXELS = np.random.default_rng(6).standard_normal((4, 4, 5, 3)) - 2.0


def on_images(*layers: mn.spec.Layer, ensemble: int | None = None) -> list[tuple[mn.Network, Array]]:
    """Return (network, theta) for each layer. The network contains the layer, and theta is away from initialisation.

    Each layer is between two convolutions. Networks end alternately in GlobalAvgPool and in Flatten, then Dense.
    """
    rng, found = np.random.default_rng(3), []
    for i, layer in enumerate(layers or IMAGE_LAYERS):
        end = mn.Flatten() if i % 2 else mn.GlobalAvgPool()
        spec = mn.Sequential(mn.Conv2d(3, 2, b_std=0.2), layer, mn.Sin(), mn.Conv2d(2, 2, b_std=0.3), end, mn.Dense(2))
        net = plain(spec, PIXELS.shape[1:])
        theta = net.init(rng, ensemble=ensemble)
        found.append((net, theta + 0.3 * rng.standard_normal(theta.shape)))
    return found


def image_adjoint() -> None:
    """<u, J v> = <J' u, v> on images."""
    for net, theta in on_images():
        testing.check_adjoint(net, theta, PIXELS, np.random.default_rng(0))


def image_derivative() -> None:
    """J v = df/ds on images."""
    for net, theta in on_images(*IMAGE_LAYERS, mn.BatchNorm(eps=0.01)):
        testing.check_derivative(net, theta, PIXELS, np.random.default_rng(0))


def image_gram() -> None:
    """gram = J J' on images."""
    for net, theta in on_images():
        testing.check_gram(net, theta, PIXELS, np.random.default_rng(0))


def image_ensemble() -> None:
    """On images, a member of an ensemble has the results of a separate network."""
    for net, theta in on_images(*IMAGE_LAYERS, mn.BatchNorm(), ensemble=3):
        testing.check_ensemble(net, theta, PIXELS, np.random.default_rng(0))


def pixel_loops() -> None:
    """A layer has the outputs of a loop over its pixels."""
    for layer in IMAGE_LAYERS[:7]:
        net = plain(mn.Sequential(layer, mn.Flatten()), PIXELS.shape[1:])
        theta = net.init(np.random.default_rng(0))
        w = net.layout.unpack(theta)
        want = convolution(layer, PIXELS, w["0.W"], w.get("0.b")) if w else pooled(layer, PIXELS)
        assert_close(f"{type(layer).__name__}", net(theta, PIXELS), want.reshape(4, -1), 1e-12)
    net = plain(mn.Sequential(mn.LayerNorm(eps=0.01), mn.Flatten()), PIXELS.shape[1:])
    at = [(n, h, w) for n in range(4) for h in range(4) for w in range(5)]
    assert_close("LayerNorm", net(np.empty(0), PIXELS), loop_norm(at, PIXELS, 0.01).reshape(4, -1), 1e-12)


def ties() -> None:
    """The first maximum in row-major order receives the derivative."""
    _, dx = max_pool(np.array([[0.0, 7.0], [7.0, 7.0]]))
    assert_close("d max / d x", dx, np.array([[0.0, 1.0], [0.0, 0.0]]), 0.0)


def calibrated() -> None:
    """Examples in a calibrated network do not affect one another."""
    ((net, theta),) = on_images(mn.BatchNorm())
    frozen = net.calibrate(theta, PIXELS)
    assert_close("f of half a batch", frozen(theta, PIXELS[:2]), net(theta, PIXELS)[:2], 1e-12)


# laws of fast paths

NEVER = 10**15


@contextmanager
def fast_paths(**closed: int) -> Iterator[None]:
    """Make small networks use every fast path, except those whose thresholds are set by keyword (to NEVER)."""
    with small_is_large(), single_threaded_blas(), pytest.MonkeyPatch.context() as patch:
        for name, value in closed.items():
            patch.setattr(THRESHOLDS, name, value)
        yield


def fast_as_written(net: mn.Network, theta: Array, x: Array) -> None:
    """Check that f, J v, J' u and the kernels of the fast version of `net` equal those of `net` up to rounding."""
    fast, rng = mn.Network(net.spec, net.input_shape, net.parametrization), np.random.default_rng(0)
    f, J = net.linearize(theta, x)
    g, K = fast.linearize(theta, x)
    v, u = rng.standard_normal(theta.shape), rng.standard_normal(f.shape)
    m = 20 * testing.roundings(net, theta, x)
    size = float(np.sqrt((J.dense() ** 2).sum()))
    assert_close("f", g, f, m * (float(np.abs(f).max()) + size * float(np.abs(theta).max())))
    assert_close("J v", K.jvp(v), J.jvp(v), m * size * float(np.linalg.norm(v)))
    assert_close("J' u", K.vjp(u), J.vjp(u), m * size * float(np.linalg.norm(u)))
    if not net.coupled:
        for name, kernel in (("ntk", mn.ntk), ("ntk_full", mn.ntk_full)):
            assert_close(name, kernel(fast, theta, x), kernel(net, theta, x), m * size**2)
            assert_close(name, kernel(fast, theta, x, x[:2]), kernel(net, theta, x, x[:2]), m * size**2)


def fast_dense() -> None:
    """A fast network gives the results of its plain layers."""
    with fast_paths():
        for net, theta in points() + points(2)[:1]:
            fast_as_written(net, theta, X)


def fast_patches() -> None:
    """A fast network on patches equals its plain layers."""
    with fast_paths(gathered_channels=NEVER, share=NEVER):
        for net, theta in on_images() + on_images(*IMAGE_LAYERS[:3], ensemble=2):
            fast_as_written(net, theta, PIXELS)


def fast_gram() -> None:
    """gram = J J' for a fast network on images, by gradients and by pairs of positions."""
    for pairs in (False, True):
        with fast_paths(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(conv_gram, "pairs_are_cheaper", lambda *_, pairs=pairs: pairs)
            for net, theta in on_images():
                fast = mn.Network(net.spec, net.input_shape)
                testing.check_gram(fast, theta, PIXELS, np.random.default_rng(0))


def fast_gathered() -> None:
    """A fast network with gathered gradients in x equals its plain layers."""
    with fast_paths(compiled=NEVER, share=NEVER):
        for net, theta in on_images() + on_images(*IMAGE_LAYERS[:3], ensemble=2):
            fast_as_written(net, theta, PIXELS)


def fast_direct() -> None:
    """A fast network compiled by Numba equals its plain layers."""
    rng = np.random.default_rng(3)
    layers = mn.Conv2d(16, 1), mn.Conv2d(32, 3, stride=2, b_std=0.2), mn.Erf(), mn.Conv2d(48, (3, 5), b_std=0.2)
    branch = mn.Sequential(mn.BatchNorm(eps=0.01), mn.ReLU(), mn.Conv2d(16, 3))
    for some in (layers, (mn.Conv2d(16, 1, b_std=0.5), mn.Residual(branch))):
        net = plain(mn.Sequential(*some, mn.GlobalAvgPool(), mn.Dense(2)), (11, 9, 2))
        with fast_paths(share=NEVER):
            fast_as_written(net, net.init(rng), 1 + rng.standard_normal((3, 11, 9, 2)))


def fast_shares() -> None:
    """A fast network with its batch split over the cores equals its plain layers."""
    with fast_paths():
        for net, theta in on_images():
            fast_as_written(net, theta, PIXELS)


def fast_coupled() -> None:
    """A fast network with BatchNorm equals its plain layers."""
    with fast_paths():
        for net, theta in on_images(mn.BatchNorm(eps=0.01)):
            fast_as_written(net, theta, PIXELS)


def fast_order() -> None:
    """A fast network with reordered layers equals its plain layers."""
    with fast_paths():
        for phi in (mn.ReLU(), mn.Abs()):
            for pool in (mn.MaxPool(2), mn.AvgPool(2)):
                net = plain(mn.Sequential(mn.Conv2d(3, 3, b_std=0.2), phi, pool, mn.Flatten(), mn.Dense(2)), (4, 6, 3))
                x = np.random.default_rng(6).standard_normal((4, 4, 6, 3))
                fast_as_written(net, net.init(np.random.default_rng(3)), x)
