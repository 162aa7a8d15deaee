"""Define laws for branches, products and masks in finite and infinite networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import analytic as an
import minintk as mn
from analytic.recursion import rules
from analytic.recursion.state import Law
from minintk import testing
from minintk.spec import shapes
from minintk.testing import assert_close
from tests.kit.montecarlo import assert_mean, inputs, kernels
from tests.kit.oracles_kernels import image_errors, image_kernels


@dataclass(frozen=True)
class Shift(mn.spec.Layer):
    """The layer y = x + b, defined as a user would define a custom layer. It adds b_std^2 to Theta and to K."""

    b_std: float


class Shifting(rules.Affine):
    """The kernel step of Shift. Shift has no weights, so the outputs have the properties of the inputs."""

    def law(self, law: Law) -> Law:
        return law


shapes.out_shape.register(Shift, lambda layer, shape: shape)
an.lower.register(Shift, lambda layer, site, how: (Shifting(1.0, layer.b_std**2, 0.0, layer.b_std**2),))

X = np.random.default_rng(0).standard_normal((4, 3))
IMAGES = np.random.default_rng(1).standard_normal((3, 3, 3, 2))


def dense(n: int = 3) -> mn.Dense:
    return mn.Dense(n, w_std=1.3, b_std=0.4)


GATE = mn.Product(dense(), mn.Identity(), mn.Sequential(mn.Tanh(), dense()))
JOINED = mn.Concat(dense(2), mn.Identity(), mn.Sequential(mn.Tanh(), dense(4)))


def branches() -> None:
    """the adjoint, the derivative and the gram of branches are right"""
    for layer in (GATE, JOINED):
        testing.check_layer(layer, (3,))


def kernels_of_branches() -> None:
    """kernels of products and concatenations = means over networks"""
    for spec in (
        mn.Sequential(mn.Product(dense(5), mn.Sequential(dense(4), mn.Erf(), dense(5))), dense(8)),
        mn.Sequential(mn.Product(*(mn.Sequential(dense(5), phi) for phi in (mn.ReLU(), mn.GELU()))), dense(8)),
        mn.Sequential(mn.Concat(dense(2), mn.Sequential(dense(4), mn.Erf(), dense(6))), dense(8)),
    ):
        x = inputs()
        upper = np.triu_indices(len(x))
        for samples, truth in zip(kernels(spec, x, 3000), an.kernel(spec).both(x), strict=True):
            assert_mean("kernel", samples, truth[upper])


def correlated_products() -> None:
    """kernels of products of a feature with itself, where E a a' b b' != E a a' E b b', are refused or right"""
    phi, x, upper = mn.ReLU(), inputs(), np.triu_indices(4)
    for parts in (
        (phi, phi),
        (mn.Identity(), phi),
        (mn.Product(mn.Sequential(dense(5), phi), phi), mn.Identity()),
        (mn.Sequential(phi, mn.Dropout(0.2)), phi),
    ):
        spec = mn.Sequential(dense(5), mn.Product(*parts), dense(8))
        try:
            k = an.kernel(spec)
        except mn.UnsupportedLayer:
            continue
        assert_mean(f"kernel of {parts}", kernels(spec, x, 3000)[0], k.nngp(x)[upper])


def kernels_of_pixels() -> None:
    """kernels of images = recursions over all pairs of pixels in extended precision"""
    conv = mn.Conv2d(4, 3, b_std=0.3)
    for layers in ((mn.Product(mn.Identity(), conv),), (mn.ReLU(), mn.Dropout(0.3), conv)):
        k = an.kernel(mn.Sequential(conv, *layers, mn.GlobalAvgPool(), mn.Dense(1)))
        worst = max(image_errors(k.both(IMAGES), image_kernels(k.spec, IMAGES)))
        assert worst < 1e-13, f"error {worst:.1e}"


def edges_and_norms() -> None:
    """the adjoints and the kernels of pooling with normalised edges and of LayerNorm over pixels are right"""
    pool = mn.AvgPool(3, stride=2, padding="same", normalize_edges=True)
    norm = mn.LayerNorm(eps=0.1, axes=(-3, -2, -1))
    for layer in (pool, norm):
        testing.check_layer(layer, (4, 3, 2))
    conv = mn.Conv2d(4, 3, b_std=0.3)
    k = an.kernel(mn.Sequential(conv, norm, mn.ReLU(), pool, conv, mn.GlobalAvgPool(), mn.Dense(1)))
    nngp, ntk = image_errors(k.both(IMAGES[:2]), image_kernels(k.spec, IMAGES[:2]))
    assert max(nngp, 1e-5 * ntk) < 1e-13, f"error {nngp:.1e} of NNGP, {ntk:.1e} of NTK"


def linear_attention() -> None:
    """kernels of linear attention with random weights = means over networks"""
    layer = mn.GlobalSelfAttention(
        8, heads=4, key_channels=2, value_channels=2, scaling="sqrt", zeta=mn.Identity(), qk_std=0.8
    )
    x, spec = IMAGES[:, 0], mn.Sequential(layer, mn.GlobalAvgPool(), dense(8))
    upper = np.triu_indices(len(x))
    for samples, truth in zip(kernels(spec, x, 2000), an.kernel(spec).both(x), strict=True):
        assert_mean("kernel", samples, np.asarray(truth)[upper])


PHIS = (
    *(mn.ReLU(), mn.LeakyReLU(0.1), mn.LeakyReLU(1.0), mn.Abs(), mn.Erf(), mn.GELU(), mn.Sin(1.0, 0.8, 0.3)),
    *(mn.Gaussian(1.0, -0.3), mn.Exp(0.5, 0.3), mn.RectifiedMonomial(2)),
)


def affine_twice_is_once(*phis: mn.spec.Layer) -> None:
    """a separate bias layer = the bias of the previous layer, before every activation"""
    for phi in phis or PHIS:
        for first, x, *end in (
            (mn.Dense, X),
            (mn.Conv2d, IMAGES, mn.Flatten()),
            (mn.Conv2d, IMAGES, mn.AvgPool(2), mn.Conv2d(4, b_std=0.3), mn.ReLU(), mn.GlobalAvgPool()),
        ):
            tail = (phi, *end, dense())
            once = an.kernel(mn.Sequential(first(9, w_std=1.3, b_std=0.7), *tail)).both(x)
            twice = an.kernel(mn.Sequential(first(9, w_std=1.3), Shift(0.7), *tail)).both(x)
            for name, one, two in zip(("NNGP", "NTK"), once, twice, strict=True):
                assert_close(f"{name}, {phi!r}", two, one, 1e-12)


def masks() -> None:
    """E m = 1, and kernels with masks = extended precision"""
    ones, net = np.ones((2000, 4)), mn.Network(mn.Dropout(0.3), (4,)).with_dropout(np.random.default_rng(0))
    m: Any = net(np.zeros(0), ones)
    assert_mean("E m", m, np.ones(4))
    k = an.kernel(mn.Sequential(dense(), mn.ReLU(), mn.Dropout(0.3), dense()))
    worst = max(image_errors(k.both(X), image_kernels(k.spec, X)))
    assert worst < 1e-13, f"error {worst:.1e}"


def masks_of_a_second_array() -> None:
    """masks are drawn once for k(x) and twice for k(x, x2), for any array x2"""
    drop, end = mn.Dropout(0.4), (mn.AvgPool(2), mn.Conv2d(4), mn.ReLU(), mn.Flatten())
    for x, *layers in (
        (X, dense(), mn.ReLU(), drop, dense()),
        (X, dense(), mn.ReLU(), drop, dense(), mn.Erf(), drop, dense()),
        (IMAGES, mn.Conv2d(4, b_std=0.3), mn.ReLU(), drop, *end, dense()),
    ):
        k, last = an.kernel(mn.Sequential(*layers)), an.kernel(mn.Sequential(*layers[:2], *layers[3:]))
        once, same, copy, plain = k.both(x), k.both(x, x), k.both(x, x.copy()), last.both(x)
        for name, one, two, three, four in zip(("NNGP", "NTK"), once, same, copy, plain, strict=True):
            assert_close(f"{name} of x and x", two, three, 1e-14)
            assert_close(f"{name} of other examples", one - np.diag(np.diag(one - two)), two, 1e-14)
            if len(layers) == 4:  # masks that only weights follow average out
                assert_close(f"{name} of two draws", two, four, 1e-14)
        for one, two in zip(k.derivatives(x, x).w_std, k.derivatives(x, x.copy()).w_std):
            assert_close("derivatives", one, two, 1e-9)
