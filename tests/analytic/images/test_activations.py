"""Test how activations transform Theta of images, including when the weights of the preceding layer are frozen."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.images import activations, pixel_pairs
from analytic.images.activations import Aligned
from analytic.recursion.state import Scratch
from minintk.spec.parametrization import Parametrization, Role, Row
from tests.analytic.images.test_engine import images
from tests.kit.montecarlo import assert_mean, kernels
from tests.kit.structure_laws import PHIS, affine_twice_is_once


@pytest.mark.parametrize("phi", [*PHIS, mn.Tanh(), mn.Softplus()], ids=repr)
def test_affine_twice_is_affine_once(phi: mn.spec.Layer) -> None:
    affine_twice_is_once(phi)


@dataclass(frozen=True)
class BiasesOnly(Parametrization):
    """NTK parametrization in which the weights of the first layer have learning rate 0."""

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        rate = 0.0 if role.kind == "weight" and role.place == "input" else 1.0
        return Row(sigma / fan_in**0.5 if role.kind == "weight" else sigma, 1.0, rate)


@pytest.mark.parametrize("phi", [mn.ReLU(), mn.LeakyReLU(0.1), mn.Abs(), mn.Erf(), mn.Tanh()], ids=repr)
@pytest.mark.parametrize("end", [mn.Flatten(), mn.GlobalAvgPool()], ids=repr)
def test_frozen_weights_with_trained_biases(phi: mn.spec.Layer, end: mn.spec.Layer) -> None:
    """With one hidden layer, networks have the mean NTK Theta at every width. Theta without biases fails the check."""
    x = np.random.default_rng(0).standard_normal((2, 3, 3, 2))
    spec = mn.Sequential(mn.Conv2d(4, w_std=2**0.5, b_std=0.7), phi, end, mn.Dense(4))
    k, upper = an.kernel(spec, BiasesOnly()), np.triu_indices(2)
    _, drawn = kernels(spec, x, 4000, parametrization=BiasesOnly())
    assert_mean("Theta", drawn, k.ntk(x)[upper])
    with pytest.raises(AssertionError, match="z = "):
        assert_mean("Theta without the biases' share", drawn, k.nngp(x)[upper])  # Theta of the readout


def patches_apart(phi: mn.spec.Layer, scale: float = 1.0) -> float:
    """Return the largest relative error of image kernels after one convolution against means over pairs of patches."""
    x = images(4, (4, 3, 2)) * np.geomspace(0.05, 2, 12).reshape((4, 3, 1))
    x[2], x[3, :2] = -x[1], 0
    patches = np.stack([x[:, i : i + 2, j : j + 2].reshape(4, 8) for i in range(3) for j in range(2)], axis=1)
    both = an.kernel(mn.Sequential(mn.Dense(4, w_std=1.3, b_std=0.2), phi)).both(patches.reshape(24, 8))
    K, Theta = (k.reshape((4, 6, 4, 6)) for k in both)
    conv, worst = mn.Conv2d(4, 2, w_std=1.3 * scale, b_std=0.2, padding="valid"), 0.0
    for end, mean in ((mn.Flatten(), "ipjp->ij"), (mn.GlobalAvgPool(), "ipjq->ij")):
        for some in (slice(None), slice(2)):
            got = an.kernel(mn.Sequential(conv, phi, end)).both(x, x[some])
            for a, b in zip(got, (K, Theta), strict=True):
                b = np.einsum(mean, b) / (6 if end == mn.Flatten() else 36)
                worst = max(worst, float(np.abs(a - b[:, some]).max() / b.max()))
    return worst


@pytest.mark.parametrize("phi", [mn.ReLU(), mn.Erf(), mn.GELU(), mn.Tanh(), mn.Softplus(), mn.Swish()], ids=repr)
def test_behind_one_convolution_images_are_means_over_their_patches(phi: mn.spec.Layer) -> None:
    """Kernels of bright, dim, opposite and black pixels are patch means to 1e-8, but not with w_std off by 1e-6."""
    assert patches_apart(phi) < 1e-9
    assert patches_apart(phi, 1 + 1e-6) > 1e-8


def test_steps_of_ones_own_may_ask_equal_pixels_for_inner_products() -> None:
    """In a user's step, `pairs.dot` returns sum_k left[i, k] right[j, k] even for equal pixels."""
    rng, P = np.random.default_rng(0), 4
    left, right = rng.standard_normal((2, 5 * P, 3))
    field: Any = SimpleNamespace(i=slice(0, 2), j=slice(2, 5))
    pairs = Aligned(Scratch(np, np.dtype(np.float64), 24), field, P, np.zeros((2, 3, P)), None)
    found = pairs.dot(left, right, np.full((2, 3, P), np.nan))
    a, b = (v.reshape((5, P, 3)) for v in (left, right))
    np.testing.assert_allclose(found, np.einsum("ipk,jpk->ijp", a[:2], b[2:]), rtol=1e-13)


@pytest.mark.parametrize("end", [mn.Flatten(), mn.GlobalAvgPool()], ids=repr)
def test_quadratures_of_tiny_images_are_linear(end: mn.spec.Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tiny images, tanh(u) = u. Negative control: the check fails if TINY_ROOT, used for roots of 0, is larger."""
    x, conv = images(4, (4, 3, 2)), mn.Conv2d(4)

    def error(scale: float) -> float:
        tanh, linear = (an.kernel(mn.Sequential(conv, *some, conv, *some, end)) for some in ((mn.Tanh(),), ()))
        both = zip(tanh.both(scale * x), linear.both(x), strict=True)
        return max(float(np.abs(a / scale / scale - b).max() / b.max()) for a, b in both)

    assert max(map(error, (1e-60, 1e-130))) < 1e-12
    monkeypatch.setitem(activations.TINY_ROOT, 8, 1e-70)
    assert error(1e-130) > 0.1


def test_pieces_of_a_field_read_their_own_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels by quadrature do not depend on the number of pixels in a piece of a field."""
    k, x = an.kernel(mn.Sequential(mn.Conv2d(4, 3), mn.Softplus(), mn.GlobalAvgPool())), images(4, (4, 3, 2))
    whole = k.both(x)
    monkeypatch.setattr(pixel_pairs, "BYTES_PER_PIECE", 8 * 4 * 12)
    for found, want in zip(k.both(x), whole, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-12)


@pytest.mark.parametrize("phi", [mn.Tanh(), mn.Softplus(), mn.Erf()], ids=repr)
def test_pixels_on_a_line_are_vectors_on_it(phi: mn.spec.Layer) -> None:
    """After an activation, kernels of collinear pixels of different norms equal those of vectors with equal entries."""
    pixels = np.array([[1.0], [2.0], [-1.0], [0.5], [1.0], [-0.25]]) * np.random.default_rng(0).standard_normal((1, 3))
    vectors = an.kernel(mn.Sequential(mn.Dense(4), phi)).both(pixels)
    image, conv = pixels.reshape((1, 2, 3, 3)), mn.Sequential(mn.Conv2d(4, 1), phi)
    two = pixels.reshape((6, 1, 1, 3))
    for whole, alone, want in zip(an.kernel(conv).pixels(image), an.kernel(conv).pixels(two), vectors, strict=True):
        np.testing.assert_allclose(whole.reshape((6, 6)), want, rtol=1e-12, atol=1e-12 * want.max())
        np.testing.assert_allclose(alone.reshape((6, 6)), want, rtol=1e-12, atol=1e-12 * want.max())
