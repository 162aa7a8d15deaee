"""Test sums, products and concatenations at infinite width against formulas, an oracle on pixels, and networks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import pytest

import analytic as an
import minintk as mn
from minintk.doors import through
from tests.kit.montecarlo import assert_mean, inputs, kernels
from tests.kit.oracles_kernels import image_errors, image_kernels

Array = np.ndarray[Any, Any]


def dense(n: int = 8, b_std: float = 0.3) -> mn.Dense:
    return mn.Dense(n, w_std=1.4, b_std=b_std)


def conv(n: int = 4, b_std: float = 0.3) -> mn.Conv2d:
    return mn.Conv2d(n, 3, w_std=1.4, b_std=b_std)


def degenerate() -> Array:
    """Return rows that are equal, opposite or nearly parallel, and a row of zeros."""
    x = np.random.default_rng(0).standard_normal((8, 5))
    x[3], x[4], x[5], x[6] = x[2], -x[2], x[1] * (1 + 1e-9), 0
    return x


def expected(kind: str, parts: list[an.Both]) -> tuple[Array, Array]:
    """Return the combined kernels of three branches of equal width."""
    (K1, T1), (K2, T2), (K3, T3) = parts
    if kind == "Product":
        return K1 * K2 * K3, T1 * K2 * K3 + K1 * T2 * K3 + K1 * K2 * T3
    share = 3 if kind == "Concat" else 1
    return (K1 + K2 + K3) / share, (T1 + T2 + T3) / share


@pytest.mark.parametrize("kind", ["Sum", "Product", "Concat"])
@pytest.mark.parametrize("b_std", [0.3, 0.0])
def test_the_formula_on_degenerate_rows(kind: str, b_std: float) -> None:
    """The diagonal, the kernel of x1 with x2, and kernels after one more layer equal the formula up to rounding."""
    x, before = degenerate(), (dense(8, b_std), mn.Erf())
    branches = (mn.Identity(), dense(8, 0.0), mn.Sequential(dense(8, b_std), mn.ReLU(), dense(8, b_std)))
    parts = [an.kernel(mn.Sequential(*before, one)).both(x) for one in branches]
    K, Theta = expected(kind, parts)
    layer = getattr(mn, kind)(*branches)
    k, one_more = an.kernel(mn.Sequential(*before, layer)), an.kernel(mn.Sequential(*before, layer, dense()))
    for got, truth in zip((*k.both(x), *one_more.both(x)), (K, Theta, 1.96 * K + 0.09, 1.96 * (Theta + K) + 0.09)):
        assert np.abs(got - truth).max() < 3e-15 * truth.max()
    np.testing.assert_allclose(k.ntk(x[:3], x[3:]), Theta[:3, 3:], rtol=0, atol=3e-15 * Theta.max())
    np.testing.assert_allclose(k.diag(x).ntk, np.diag(Theta), rtol=1e-14)
    np.testing.assert_allclose(k.ntk(x.astype(np.float32)), Theta, rtol=0, atol=2e-6 * Theta.max())


def images() -> Array:
    """Return four images, of which two are equal and a third is their negative."""
    x = np.random.default_rng(1).standard_normal((4, 4, 3, 2))
    x[2], x[3] = x[1], -x[1]
    return x


IMAGE_BRANCHES = {
    "Sum": (mn.Identity(), conv(), mn.Sequential(mn.LeakyReLU(0.2), conv())),
    "Product": (mn.Identity(), conv(), mn.Sequential(mn.ReLU(), conv(4, 0.0))),
    "Product of pools": (
        mn.Sequential(mn.AvgPool(2, stride=1, padding="same"), conv()),
        mn.Sequential(mn.Abs(), conv()),
    ),
    "Concat": (conv(3), mn.Sequential(mn.ReLU(), conv(2)), conv(1)),
}


@pytest.mark.parametrize("name", IMAGE_BRANCHES)
@pytest.mark.parametrize("b_std", [0.3, 0.0])
@pytest.mark.parametrize("end", [mn.Flatten(), mn.GlobalAvgPool()], ids=repr)
def test_images_against_all_pairs_of_pixels(name: str, b_std: float, end: mn.spec.Layer) -> None:
    """Compare kernels with those of all pairs of pixels in extended precision, also for equal and opposite images."""
    x = images()
    layer = getattr(mn, name.split()[0])(*IMAGE_BRANCHES[name])
    k = an.kernel(mn.Sequential(conv(4, b_std), layer, conv(), mn.ReLU(), end, dense(1)))
    assert max(image_errors(k.both(x), image_kernels(k.spec, x))) < 1e-13
    assert np.allclose(k.ntk(x[:2], x[2:]), k.ntk(x)[:2, 2:], rtol=1e-13)


@pytest.mark.parametrize("kind", ["Sum", "Product", "Concat"])
def test_networks_have_these_kernels_on_average(kind: str) -> None:
    """Branches that start at the inputs are independent, so networks' mean kernels equal the limit at every width.

    Negative control: the check fails on the kernels of the sum, or for a sum, on those of the product.
    """
    x = inputs()
    branches: tuple[mn.spec.Layer, ...] = (
        mn.Dense(6, b_std=0.4),
        mn.Sequential(mn.Dense(5), mn.Erf(), dense(6)),
        mn.Sequential(dense(6), mn.Tanh()),
    )
    branches = branches[:2] if kind != "Concat" else branches
    spec = mn.Sequential(getattr(mn, kind)(*branches), dense(8))
    upper = np.triu_indices(len(x))
    wrong = "Product" if kind == "Sum" else "Sum"
    others = an.kernel(mn.Sequential(getattr(mn, wrong)(*branches), dense(8))).both(x)
    for samples, truth, other in zip(kernels(spec, x, 4000), an.kernel(spec).both(x), others):
        assert_mean(repr(spec), samples, truth[upper])
        with pytest.raises(AssertionError, match="z = "):
            assert_mean(repr(spec), samples, other[upper])


@pytest.mark.parametrize("phis", [(mn.ReLU(), mn.ReLU()), (mn.Abs(), mn.GELU()), (mn.Erf(), mn.Sigmoid())], ids=repr)
@pytest.mark.parametrize("on", ["vectors", "images"])
def test_products_of_branches_with_weights_of_their_own(phis: tuple[mn.spec.Layer, ...], on: str) -> None:
    """Branches of a product need neither end in weights nor have mean 0, because independence is enough.

    Negative control: the check fails on the sum of the branches' kernels.
    """
    x, first, end = (inputs(3), dense, ()) if on == "vectors" else (images()[:3, :2, :2], conv, (mn.GlobalAvgPool(),))
    branches = [mn.Sequential(first(4), phi) for phi in phis]
    product = mn.Product(*branches)
    spec, upper = mn.Sequential(product, *end, dense()), np.triu_indices(3)
    parts = [an.kernel(mn.Sequential(*branch, *end, dense())).both(x) for branch in branches]
    for samples, truth, one, two in zip(kernels(spec, x, 4000), an.kernel(spec).both(x), *parts):
        assert_mean(repr(spec), samples, truth[upper])
        with pytest.raises(AssertionError, match="z = "):
            assert_mean(repr(spec), samples, (one + two)[upper])


@pytest.mark.parametrize(
    ("branches", "seen"),
    [
        (lambda n: (dense(n), mn.Identity()), True),
        (lambda n: (mn.Sequential(dense(n), mn.ReLU()), mn.Identity()), False),
        (lambda n: (mn.Sequential(dense(n), mn.ReLU()), mn.Sequential(dense(n), mn.ReLU())), False),
    ],
    ids=["weights", "weights and an activation", "both"],
)
def test_products_on_shared_features_converge_as_one_over_the_width(branches: Any, seen: bool) -> None:
    """The cross terms of Theta, df_1/dw f_2 df_2/dw f_1 for weights w below the product, are of order 1/n.

    Fluctuations of K below the product add terms of the same order. Therefore n (E hatTh - Th) is equal at both widths
    within the errors and the next order in 1/n, and not 0 if `seen`.
    """
    x, found = inputs(3), []
    for n in (8, 32):
        spec = mn.Sequential(dense(n), mn.Erf(), mn.Product(*branches(n)), dense(4))
        _, ntk = kernels(spec, x, 8000)
        off = n * (ntk - an.kernel(spec).ntk(x)[np.triu_indices(3)]).mean(axis=1)
        found.append((off.mean(), off.std(ddof=1) / len(off) ** 0.5))
    (small, e), (large, d) = found
    assert abs(small) > 6 * e or not seen
    assert abs(small - large) < 6 * (e**2 + d**2) ** 0.5 + abs(small) / 4  # plus the next order in 1/n


def test_what_is_correlated_is_refused() -> None:
    for kind, why in ((mn.Sum, "neither ends in weights"), (mn.Product, "neither has weights of its own")):
        with pytest.raises(mn.UnsupportedLayer, match=why):
            an.kernel(mn.Sequential(dense(), kind(dense(), mn.Identity(), mn.ReLU())))
    with pytest.raises(mn.UnsupportedLayer, match="neither ends in weights"):
        an.kernel(mn.Sum(*(mn.Sequential(dense(), mn.ReLU()) for _ in range(2))))
    for layer in (mn.Product(dense(), dense()), mn.Concat(dense(), dense(4, 0.0))):
        with pytest.raises(mn.UnsupportedLayer, match="ReLU acts on values that are not Gaussian"):
            an.kernel(mn.Sequential(layer, mn.ReLU(), mn.Dense(1)))
    an.kernel(mn.Sequential(dense(), mn.Concat(mn.Identity(), mn.ReLU()), dense()))  # no cross terms in any feature


def test_products_of_features_that_differ_in_variance() -> None:
    """A product raises an error if, within each of the two factors, features differ in variance.

    If features differ in variance within only one factor, the kernel is correct.
    """
    sides, x = mn.Concat(dense(4, 0.0), mn.Dense(4, w_std=3.0)), inputs(3)
    pixels = mn.Sequential(mn.Conv1d(4, 1), mn.Flatten())
    for layer in (mn.Product(sides, sides), mn.Product(pixels, pixels), mn.Product(mn.Product(sides, dense()), sides)):
        with pytest.raises(mn.UnsupportedLayer, match="features differ in variance"):
            an.kernel(mn.Sequential(layer, mn.Dense(1)))
    spec = mn.Sequential(mn.Product(sides, dense()), dense())
    for samples, truth in zip(kernels(spec, x, 4000), an.kernel(spec).both(x)):
        assert_mean("a Concat times a Dense", samples, truth[np.triu_indices(3)])


def test_derivatives_in_the_scales() -> None:
    """Compare derivatives of sums, products and concatenations with finite differences of kernels of scaled specs.

    The finite differences use steps ten times as large as the library's.
    """
    x = inputs()
    for kind in (mn.Sum, mn.Product, mn.Concat):
        layer = kind(mn.Dense(6, b_std=0.4), mn.Sequential(mn.Dense(5), mn.ReLU(), mn.Dense(6)))
        k = an.kernel(mn.Sequential(layer, mn.Dense(1)))
        h, found = 1e-4, k.derivatives(x)
        for name in ("w_std", "b_std"):
            up, down = (k._scaled(name, np.exp(s * h)).both(x) for s in (1, -1))
            for got, a, b in zip(getattr(found, name), up, down, strict=True):
                np.testing.assert_allclose(got, (a - b) / (2 * h), rtol=0, atol=1e-6 * np.abs(got).max())


DROP = mn.Dropout(0.3)


@pytest.mark.parametrize(
    "layers",
    [
        (mn.ReLU(), DROP, conv(), mn.ReLU(), mn.Flatten()),
        (DROP, conv(), mn.LeakyReLU(0.1), DROP, mn.GlobalAvgPool()),
        (mn.Residual(mn.Sequential(mn.ReLU(), DROP, conv())), mn.AvgPool(2), mn.Flatten(), DROP),
        (mn.Product(mn.Sequential(DROP, conv()), conv()), mn.GlobalAvgPool()),
    ],
)
def test_masks_on_images(layers: tuple[mn.spec.Layer, ...]) -> None:
    """Every pixel of every image has its own mask, even if two images are equal."""
    x = images()
    k = an.kernel(mn.Sequential(conv(), *layers, dense(1)))
    truth = image_kernels(k.spec, x)
    assert max(image_errors(k.both(x), truth)) < 1e-13
    np.testing.assert_allclose(k.diag(x).ntk, np.diag(truth[1]).astype(float), rtol=1e-13)
    np.testing.assert_allclose(k.ntk(x[:2], x[2:]), truth[1][:2, 2:].astype(float), rtol=1e-12)


def test_masks_on_vectors() -> None:
    x = np.delete(degenerate(), 5, axis=0)  # the oracle's cosines are too coarse for nearly parallel rows
    for b_std in (0.3, 0.0):
        layers = dense(8, b_std), mn.ReLU(), DROP, dense(8, b_std), mn.Erf(), DROP, dense(8, b_std)
        k = an.kernel(mn.Sequential(*layers))
        truth = image_kernels(k.spec, x)
        assert max(image_errors(k.both(x), truth)) < 1e-14
        if through("blocks"):
            with ThreadPoolExecutor(2) as pool:
                assert np.array_equal(k.ntk(x, executor=pool), k.ntk(x))
        plain = an.kernel(mn.Sequential(*(layer for layer in layers if layer != DROP)))
        assert max(image_errors(plain.both(x), truth)) > 0.1  # negative control: a kernel without masks


def test_a_second_array_has_masks_of_its_own() -> None:
    """For two draws of masks, E f(x) f(x2) is k(x, x2), even if x2 is x. k(x), for one draw, fails the check."""
    x, end = inputs(3), mn.Dense(4, w_std=1.3, b_std=0.2)
    spec = mn.Sequential(mn.Dense(6, b_std=0.4), mn.ReLU(), mn.Dropout(0.4), end)
    k, net, rng, drawn = an.kernel(spec), mn.Network(spec, (3,)), np.random.default_rng(0), []
    for _ in range(12):
        theta = net.init(rng, ensemble=250)
        f, f2 = (net.with_dropout(rng, ensemble=250)(theta, x) for _ in range(2))
        drawn.append(f @ f2.swapaxes(1, 2) / 4)
    for x2 in (x, x.copy(), x[:]):
        assert_mean("two draws", np.concatenate(drawn), np.asarray(k.nngp(x, x2)))
    with pytest.raises(AssertionError, match="z = "):
        assert_mean("one draw", np.concatenate(drawn), np.asarray(k.nngp(x)))
    gp = an.posterior(k, x, x[:, :1], ridge=0.1)
    np.testing.assert_array_equal(gp.predict(x), gp.predict(x.copy()))


def test_masks_of_the_inputs_are_refused() -> None:
    """All neurons share the masks of the inputs, so a preactivation is a mixture of Gaussians.

    At d = 2, the recursion would be wrong by a quarter (0.86 instead of 0.69).
    """
    for first in (DROP, mn.Sequential(mn.Scale(2.0), DROP), mn.Sum(mn.Sequential(DROP, dense()), dense())):
        with pytest.raises(mn.UnsupportedLayer, match="Dropout of the inputs"):
            an.kernel(mn.Sequential(first, dense(), mn.Erf(), mn.Dense(1)))


@pytest.mark.parametrize("on", ["vectors", "images"])
def test_networks_with_masks_have_this_kernel_on_average(on: str) -> None:
    """With one hidden layer, the means of f f' and df/dtheta df'/dtheta over weights and masks are the kernels."""
    x, end = inputs(3), mn.Dense(4, w_std=1.3, b_std=0.2)
    spec = mn.Sequential(mn.Dense(6, b_std=0.4), mn.ReLU(), mn.Dropout(0.4), end)
    if on == "images":  # the masks of pixels are pooled
        x = images()[[0, 1, 3], :2, :2]
        gate = mn.Product(conv(3), mn.Sequential(mn.Conv2d(3, 1, b_std=0.5), mn.ReLU()))
        spec = mn.Sequential(gate, mn.Dropout(0.4), mn.GlobalAvgPool(), end)
    net, rng, upper, both = mn.Network(spec, x.shape[1:]), np.random.default_rng(0), np.triu_indices(3), []
    for _ in range(12):
        theta = net.init(rng, ensemble=250)
        f, J = net.with_dropout(rng, ensemble=250).linearize(theta, x)
        dense_J = J.dense()
        both.append([f @ f.swapaxes(1, 2) / 4, np.einsum("encp,emcp->enm", dense_J, dense_J) / 4])
    plain = an.kernel(mn.Sequential(*(layer for layer in spec if not isinstance(layer, mn.Dropout)))).both(x)
    for samples, truth, other in zip(zip(*both), an.kernel(spec).both(x), plain):
        drawn = np.concatenate(samples)[:, *upper]
        assert_mean("with masks", drawn, truth[upper])
        with pytest.raises(AssertionError, match="z = "):
            assert_mean("without", drawn, other[upper])


# -------------------------------------------------------------------------------------------- kernel algebra


def test_the_algebra_of_kernels() -> None:
    """Matrices of sums, products and multiples of kernels equal formulas in the kernels' matrices, up to rounding.

    Check kernels of vectors and of images, with and without residual blocks.
    """
    block = mn.Residual(mn.Sequential(mn.ReLU(), dense()))
    one, two = (
        an.kernel(mn.Sequential(dense(), mn.Erf(), dense(1))),
        an.kernel(mn.Sequential(dense(), block, block, dense(1))),
    )
    flat = an.kernel(mn.Sequential(mn.Flatten(), *two.spec))
    cnn = an.kernel(
        mn.Sequential(conv(), mn.ReLU(), mn.AvgPool(2, padding="same"), conv(), mn.GlobalAvgPool(), dense(1))
    )
    muP = mn.SpectralMuP()
    for a, b, x in (
        (one, two, degenerate()),
        (cnn, flat, images()),
        (an.kernel(two.spec, muP), an.kernel(mn.Sequential(dense(), block, dense(1)), muP), degenerate()),
    ):
        (K, Theta), (L, Phi) = a.both(x), b.both(x)
        product = Theta * L + K * Phi
        found: list[Any] = [
            (sum([a, b]), K + L, Theta + Phi),
            (a + np.float64(0.3) * b * 2, K + 0.6 * L, Theta + 0.6 * Phi),
            (a * b, K * L, product),
            (a**2 / 3, K * K / 3, 2 * Theta * K / 3),
            (2 * (a * b + b) * a, 2 * (K * L + L) * K, 2 * (product + Phi) * K + 2 * (K * L + L) * Theta),
        ]  # under muP K is of order 1/n, so Theta of a product is too
        for k, expected_nngp, expected_ntk in found[: 2 if a.parametrization == muP else 5]:
            for got, wanted in zip(k.both(x), (expected_nngp, expected_ntk), strict=True):
                assert np.abs(got - wanted).max() < 1e-14 * wanted.max()


def test_a_sum_of_kernels_is_a_kernel_for_all_that_takes_one() -> None:
    x, y = inputs(8), inputs(8, 1, seed=1)
    k = an.kernel(mn.Sequential(dense(), mn.Erf(), dense(1))) + 0.5 * an.kernel(mn.Dense(1))
    K, Theta = k.both(x)
    kinds: tuple[Literal["nngp", "ntk"], ...] = ("nngp", "ntk")
    for kind, matrix in zip(kinds, (K, Theta)):
        gp = an.posterior(k, x[:6], y[:6], ridge=0.1, kind=kind)
        mean = matrix[6:, :6] @ np.linalg.solve(matrix[:6, :6] + 0.1 * np.eye(6), y[:6])
        np.testing.assert_allclose(gp.predict(x[6:]), mean, rtol=1e-9)
    f = an.ensemble(k, x[:6], y[:6], lr=0.3).predict(x[6:], t=2.0)
    np.testing.assert_allclose(f, an.gradient_flow(Theta[:6, :6], y[:6], lr=0.3).predict(2.0, Theta[6:, :6]), rtol=1e-9)


def test_what_is_no_kernel_is_refused() -> None:
    k: Any = an.kernel(mn.Dense(1))
    other: Any
    for other in (1, np.eye(2), None):
        with pytest.raises((TypeError, ValueError), match="expect"):
            other + k if isinstance(other, int) else k + other
    for other in (0.5, 0, k):
        with pytest.raises((TypeError, ValueError), match="expects"):
            k**other
    for other in (-1.0, 0, np.eye(2), an.kernel(mn.Dense(1), mn.Standard())):
        with pytest.raises((TypeError, ValueError), match="expect"):
            k * other
        with pytest.raises((TypeError, ValueError), match="expects"):
            k / other
