"""Compare kernels of attention on degenerate inputs with an mpmath recursion over all pairs of positions."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest

import analytic as an
import minintk as mn
from tests.kit.oracles_kernels import DIGITS, dual, largest_errors

Array = np.ndarray[Any, Any]


def activated(phi: mn.spec.Layer, K: Any, T: Any) -> tuple[Any, Any]:
    """Return K and Theta of all pairs of positions after phi."""
    both = [[dual(phi, K[i, i], K[j, j], K[i, j]) for j in range(K.cols)] for i in range(K.rows)]
    slopes = [[T[i, j] * slope for j, (_, slope) in enumerate(row)] for i, row in enumerate(both)]
    return mp.matrix([[k for k, _ in row] for row in both]), mp.matrix(slopes)


def attending(layer: mn.GlobalSelfAttention, K: Any, N: int) -> Any:
    """Return the attention matrix A of N examples. The matrix has one block per example."""
    L = K.rows // N
    A = mp.matrix(N * L, N * L)
    for n, s in np.ndindex(N, L):
        at = [n * L + t for t in range(L)]
        i = at[s]
        seen = [not layer.masked or (K[i, i] != 0 and K[j, j] != 0) for j in at]
        G = [layer.qk_std * K[i, j] for j in at]
        row = G if layer.zeta != "softmax" else [mp.exp(g) if here else mp.mpf(0) for g, here in zip(G, seen)]
        total = sum(row) if layer.zeta == "softmax" and any(seen) else mp.mpf(1)
        for j, a in zip(at, row):
            A[i, j] = a / total
    return A


def cubed(K: Any, T: Any, gain: Any, N: int) -> tuple[Any, Any]:
    """Return gain K_ab sum_st K_st^2 (s, t: positions) for pairs of examples, and Theta if all weights are trained."""
    L, after, theta = K.rows // N, mp.matrix(K.rows, K.cols), mp.matrix(K.rows, K.cols)
    for n, m in np.ndindex(N, N):
        places = [(n * L + s, m * L + t) for s, t in np.ndindex(L, L)]
        square, mixed = (mp.fsum(K[at] * other[at] for at in places) for other in (K, T))
        for at in places:
            after[at] = gain * K[at] * square
            theta[at] = gain * (T[at] * square + 2 * K[at] * mixed) + 4 * after[at]
    return after, theta


def exact(phi: mn.spec.Layer, layer: mn.GlobalSelfAttention, x: Array) -> tuple[Any, Any]:
    """Return NNGP and NTK of (Conv1d, phi, attention, phi, mean, Dense) as rows of entries j >= i, to DIGITS digits."""
    N, L, C = x.shape
    with mp.workdps(DIGITS):
        rows = mp.matrix([[mp.mpf(float(v)) for v in row] for row in x.reshape(N * L, C)])
        K = rows * rows.T / C
        K, T = activated(phi, K, K)
        w2 = mp.mpf(layer.w_std) ** 2
        if layer.scaling == "sqrt":
            K, T = cubed(K, T, w2 * mp.mpf(layer.qk_std) ** 2, N)
        else:
            A = attending(layer, K, N)
            K, T = w2 * A * K * A.T, w2 * A * (T + 2 * K) * A.T
        K, T = activated(phi, K, T)
        mean = mp.matrix(N, N * L)
        for n in range(N):
            seen = [n * L + t for t in range(L) if not layer.masked or K[n * L + t, n * L + t] != 0]
            for i in seen:
                mean[n, i] = mp.mpf(1) / len(seen)
        K, T = mean * K * mean.T, mean * T * mean.T
        return tuple([[v[i, j] for j in range(i, N)] for i in range(N)] for v in (K, K + T))  # type: ignore[return-value]


def degenerate(rng: np.random.Generator, near: bool) -> Array:
    """Return equal, opposite, zero, reversed and padded sequences.

    near : if True, add sequences that are parallel to within 1e-5, 1e-8 and 1e-12.
    """
    a, side = rng.standard_normal((2, 3, 4))
    cut = a.copy()
    cut[2] = 0
    some = [a, a, -a, 0 * a, side, a[::-1], cut]
    return np.stack(some + [a + angle * side for angle in (1e-5, 1e-8, 1e-12)] if near else some)


LAYERS = {
    "softmax": mn.GlobalSelfAttention(4, qk_std=1.5, w_std=1.2),
    "identity": mn.GlobalSelfAttention(4, zeta=mn.Identity()),
    "padding left out": mn.GlobalSelfAttention(4, masked=True),
    "random weights": mn.GlobalSelfAttention(4, scaling="sqrt", zeta=mn.Identity(), qk_std=1.5, w_std=1.2),
}


def largest(
    phi: mn.spec.Layer, layer: mn.GlobalSelfAttention, x: Array, w_std: float | None = None
) -> tuple[float, float]:
    """Return the largest errors of NNGP and NTK, relative to the diagonals."""
    mean = mn.MaskedAvgPool() if layer.masked else mn.GlobalAvgPool()
    spec = mn.Sequential(mn.Conv1d(4, 1, w_std=w_std or 1.0), phi, layer, phi, mean, mn.Dense(1))
    return largest_errors(an.kernel(spec).both(x), exact(phi, layer, x))


@pytest.mark.parametrize("name", ["identity", "padding left out", "random weights"])
def test_exact_at_equal_opposite_zero_and_padded_sequences(name: str) -> None:
    """Check that errors are below 1e-11. Negative control: they exceed 1e-11 if w_std is off by 1e-9."""
    x = degenerate(np.random.default_rng(1), near=False)
    assert max(largest(mn.ReLU(), LAYERS[name], x)) < 1e-11
    assert max(largest(mn.ReLU(), LAYERS[name], x, 1 + 1e-9)) > 1e-11


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("name", ["softmax", "identity", "random weights"])
def test_the_shortest_sequences(name: str, length: int) -> None:
    """Compare sequences of two positions and of a single position, which attends only to itself, with mpmath."""
    x = np.random.default_rng(2).standard_normal((3, length, 4))
    assert max(largest(mn.ReLU(), LAYERS[name], x)) < 1e-14


def test_nearly_parallel_sequences() -> None:
    """Both kernels of erf and the NNGP of ReLU are accurate to 1e-11.

    The NTK of ReLU is accurate only to 1e-8, because after sums or pooling, angles are known only to sqrt(eps).
    """
    x = degenerate(np.random.default_rng(1), near=True)
    assert max(largest(mn.Erf(), LAYERS["softmax"], x)) < 1e-11
    nngp, ntk = largest(mn.ReLU(), LAYERS["softmax"], x)
    assert nngp < 1e-11
    assert ntk < 1e-8


def test_cubes_of_large_variances_in_single_precision() -> None:
    """Kernels are correct even if variances between layers exceed the float32 range: they are computed in float64."""
    k = an.kernel(mn.Sequential(LAYERS["random weights"], mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1)))
    x = 3e5 * degenerate(np.random.default_rng(1), near=False)
    for a, b in zip(k.both(x.astype(np.float32)), k.both(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * b.max())
    one = an.kernel(mn.Sequential(LAYERS["random weights"], mn.Flatten())).ntk(x[:4, :1])  # a single position
    np.testing.assert_allclose(one, 4 * (1.5 * 1.2) ** 2 * ((x[:4, 0] @ x[:4, 0].T) / 4) ** 3, rtol=1e-13)


def test_single_precision_blocks_and_diagonals() -> None:
    """Float32 kernels are accurate to 1e-5 of the largest entry.

    Kernels of x with x2, diagonals, and kernels of images (H, W, C) agree with the kernel of x.
    """
    x = degenerate(np.random.default_rng(1), near=False)
    spec = mn.Sequential(mn.Conv1d(4, 3), mn.ReLU(), LAYERS["softmax"], mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1))
    k = an.kernel(spec)
    whole = k.both(x)
    for a, b in zip(whole, k.both(x.astype(np.float32)), strict=True):
        assert b.dtype == np.float32
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-5 * a.max())
    parts = zip(whole, k.both(x[:3], x[3:]), k.diag(x), (1e-12, 1e-8), strict=True)  # Theta needs angles after sums
    for a, b, d, digits in parts:
        np.testing.assert_allclose(b, a[:3, 3:], rtol=0, atol=digits * a.max())
        np.testing.assert_allclose(d, np.diag(a), rtol=1e-12)
    wide = mn.Sequential(mn.Conv2d(4, (1, 3)), *spec.layers[1:])
    for a, b in zip(whole, an.kernel(wide).both(x[:, None]), strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-12 * a.max())


def test_without_activations_sums_over_positions_keep_their_digits() -> None:
    """In float32, kernels that sum over 200 positions are accurate to about four eps of the largest entry.

    The diagonal of the kernel equals `diag` exactly.
    """
    k = an.kernel(mn.Sequential(mn.Conv1d(4, 1), LAYERS["random weights"], mn.Flatten(), mn.Dense(1)))
    x = np.random.default_rng(0).standard_normal((4, 200, 2))
    for a, b, d in zip(k.both(x), k.both(x.astype(np.float32)), k.diag(x), strict=True):
        assert np.abs(b - a).max() < 5e-7 * a.max()
        np.testing.assert_array_equal(np.diag(a), d)


def missing_pixels(ones: bool) -> tuple[Array, list[Array]]:
    """Return images in which missing pixels are 0, and the pixels present in each image as a sequence.

    One of the pixels that are present is 0, except in the channel of ones that `ones` adds.
    """
    rng = np.random.default_rng(0)
    x, missing = rng.standard_normal((3, 4, 5, 2)), rng.random((3, 4, 5)) < 0.3
    x[:, 0, 0], missing[:, 0, 0] = 0, False
    x = np.concatenate([x, np.ones((3, 4, 5, 1))], axis=-1)[..., : 3 if ones else 2]
    return np.where(missing[..., None], 0.0, x), [one[~gone][None] for one, gone in zip(x, missing, strict=True)]


def pixelwise(conv: Any) -> mn.Sequential:
    """Return a network with attention and a mean over the pixels that are present."""
    layers = (conv(8, 1, w_std=1.5), mn.ReLU(), mn.GlobalSelfAttention(8, masked=True), mn.Tanh())
    return mn.Sequential(*layers, mn.MaskedAvgPool(), mn.Dense(1))


def test_missing_pixels_are_as_if_they_were_not_there() -> None:
    """Check that kernels, outputs and empirical kernels of images depend only on the pixels that are present."""
    x, few = missing_pixels(ones=True)
    padded = np.concatenate([np.pad(one, ((0, 0), (0, 20 - one.shape[1]), (0, 0))) for one in few])
    for got, want in zip(an.kernel(pixelwise(mn.Conv2d)).both(x), an.kernel(pixelwise(mn.Conv1d)).both(padded)):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    net = mn.Network(pixelwise(mn.Conv2d), x.shape[1:])
    theta, ntk = net.init(np.random.default_rng(1)), an.kernel(pixelwise(mn.Conv2d)).ntk(x)
    for i, one in enumerate(few):
        alone = mn.Network(pixelwise(mn.Conv1d), one.shape[1:])
        np.testing.assert_allclose(alone(theta, one)[0], net(theta, x)[i], rtol=1e-12)
        np.testing.assert_allclose(mn.ntk(alone, theta, one)[0, 0], mn.ntk(net, theta, x)[i, i], rtol=1e-12)
        np.testing.assert_allclose(an.kernel(pixelwise(mn.Conv1d)).ntk(one)[0, 0], ntk[i, i], rtol=1e-12)


def test_a_pixel_of_value_0_counts_as_missing_without_a_channel_of_ones() -> None:
    """Negative control: without a channel of ones, a pixel of value 0 counts as missing, which changes the mean."""
    for ones in (True, False):
        x, few = missing_pixels(ones)
        pool = mn.Sequential(mn.Conv2d(8, 1), mn.MaskedAvgPool(), mn.Dense(1))
        mean = np.array([np.mean(one.mean(axis=1) ** 2) for one in few])
        seen = np.array([one.shape[1] for one in few])
        left_out = 1.0 if ones else (seen / (seen - 1)) ** 2
        np.testing.assert_allclose(np.diag(an.kernel(pool).nngp(x)), mean * left_out, rtol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("grid", [(3, 2), (6, 1)], ids=repr)
def test_positions_of_images_are_those_of_sequences(name: str, grid: tuple[int, int]) -> None:
    """The kernels of 3 x 2 and 6 x 1 images equal those of sequences. The masked mean of one position is its value."""
    x = np.random.default_rng(0).standard_normal((3, 6, 2))
    x[1:, 1:] *= [[[0.0]], [[1.0]]]
    mean = mn.MaskedAvgPool() if LAYERS[name].masked else mn.GlobalAvgPool()
    ends = mn.ReLU(), LAYERS[name], mn.ReLU(), mean, mn.Dense(1)
    row, image = (an.kernel(mn.Sequential(conv(4, 1), *ends)) for conv in (mn.Conv1d, mn.Conv2d))
    for a, b in zip(row.both(x), image.both(x.reshape((3, *grid, 2))), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-12)
    if LAYERS[name].masked:
        np.testing.assert_allclose(row.nngp(x)[1:2, 1:2], row.nngp(x[1:2, :1]), rtol=1e-12)
