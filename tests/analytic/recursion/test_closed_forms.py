"""Test closed forms against quadrature, against 70-digit values on degenerate rows, and on images."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from math import factorial, pi, sqrt
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.recursion import quadrature
from analytic.recursion.closed_forms import ClosedForm, closed_form
from analytic.recursion.quadrature import Quadrature
from analytic.recursion.rules import lower
from minintk.layers.activation import pointwise
from tests.kit.every import examples, layers
from tests.kit.montecarlo import assert_mean, inputs
from tests.kit.oracles_kernels import degenerate_rows, exact_kernels, image_errors, image_kernels, largest_errors

Array = Any

KINDS = [mn.Cos(1.2, 0.8, 0.4), mn.Exp(0.7, 0.3), mn.Gaussian(), mn.GELU(), mn.RectifiedMonomial(2)]
MORE = [mn.Sin(), mn.Cos(), mn.Rbf(0.6), mn.Gaussian(1.3, -0.2), mn.Monomial(3), mn.Polynomial((0.3, -0.8, 0.2, 0.1))]
EACH = [*KINDS, *(pytest.param(phi, marks=pytest.mark.slow) for phi in MORE)]
FOUND = [phi for kind in layers() if issubclass(kind, mn.Activation) for phi, at in examples(kind) if len(at) == 1]
INFINITE = [mn.Gaussian(0.6, 0.6)]  # E exp(0.6 u^2)^2 is infinite for the variances in these tests
SMOOTH = [
    phi for phi in FOUND
    if isinstance(closed_form(phi), ClosedForm) and not pointwise(phi).kinks and phi not in INFINITE
]  # fmt: skip
"""Activations of every class with a closed form and no kinks (with kinks, the series do not converge to 1e-12)."""


@dataclass(frozen=True)
class Plain(mn.Activation):
    """The phi of another activation, without its closed form."""

    of: mn.Activation


@dataclass(frozen=True)
class Wrong(Plain):
    """Another activation's closed form, in which p' and E phi' phi' are multiplied by wrong factors."""

    p: float = 1.0
    slope: float = 1.0


@dataclass(frozen=True)
class Textbook(Plain):
    """The textbook formulas for `mn.Rbf(0.5)`."""


def wrong(layer: Wrong, site: Any, parametrization: Any) -> tuple[ClosedForm]:
    dual = closed_form(layer.of)
    assert isinstance(dual, ClosedForm)

    def turn(*given: Any) -> tuple[Array, Array]:
        p, slope = dual.form.turn(*given)
        return layer.p * p, layer.slope * slope

    return (replace(dual, form=replace(dual.form, turn=turn)),)


pointwise.register(Plain, lambda layer: replace(pointwise(layer.of), dual=None))
lower.register(Wrong, wrong)
an.register_dual(Textbook, *(2 * [lambda q, q2, k: np.exp(k - (q + q2) / 2)]))


def network(*phi: mn.spec.Layer, b_std: float = 0.3) -> mn.Sequential:
    return mn.Sequential(
        *(layer for one in phi for layer in (mn.Dense(8, w_std=1.1, b_std=b_std), one)), mn.Dense(1, b_std=b_std)
    )


def relative(got: Array, want: Array) -> float:
    """Return the largest error of the NNGP and the NTK, relative to sqrt(k(x, x) k(x', x'))."""
    scales = [np.sqrt(np.outer(k.diagonal(), k.diagonal())) for k in want]
    return max(float((np.abs(a - b) / s).max()) for a, b, s in zip(got, want, scales, strict=True))


def check_against_quadrature(phi: mn.Activation, plain: Plain) -> None:
    """Check that the NNGP and the NTK equal the quadrature to 1e-12, at angles from 0 to pi and norms from 0.3 to 2."""
    angle = np.array([0.0, 0.3, 1.0, 1.6, 2.4, 3.0, pi, 0.3, 1.6, pi])[:, None]
    x = np.array([1.0] * 7 + [0.3, 2.0, 1.4])[:, None] * sqrt(2) * np.hstack([np.cos(angle), np.sin(angle)])
    error = relative(an.kernel(network(phi)).both(x), an.kernel(network(plain)).both(x))
    assert error < 1e-12, f"{phi}: off by {error:.1e}"


@pytest.mark.parametrize("phi", dict.fromkeys(KINDS[:4] + MORE + SMOOTH), ids=repr)
def test_closed_forms_are_what_quadrature_finds(phi: mn.Activation) -> None:
    assert isinstance(closed_form(Plain(phi)), Quadrature)
    check_against_quadrature(phi, Plain(phi))


@pytest.mark.parametrize("how", [{"p": 1 + 1e-10}, {"slope": 1 + 1e-10}], ids=["p'", "slope"])
@pytest.mark.parametrize("phi", [mn.Cos(), mn.GELU()], ids=repr)
def test_the_check_refuses_a_wrong_dual(phi: mn.Activation, how: Any) -> None:
    with pytest.raises(AssertionError, match="off by"):
        check_against_quadrature(Wrong(phi, **how), Plain(phi))


def modest_rows(dtype: Any) -> Array:
    """Return degenerate rows. Rows with norms above 10, whose exponentials would overflow, are scaled down."""
    x = degenerate_rows(np.random.default_rng(1))
    norm = np.linalg.norm(x, axis=1, keepdims=True) / sqrt(x.shape[1])
    return (x * np.where(norm > 10, 2e-6, 1.0)).astype(dtype)


BOUND = {np.float64: 1e-11, np.float32: 2e-6}


def check_degenerate(phi: mn.Activation, dtype: Any) -> None:
    """Compare kernels of all pairs with 70-digit values, including after a later ReLU, which depends on angles."""
    x = modest_rows(dtype)[[0, 1, 2, 4, 6, 8, 9, 10, 12, 14, 15, 16, 18, 21]]
    for spec in (network(phi, b_std=0.0), network(phi, mn.ReLU())):
        errors = largest_errors(an.kernel(spec).both(x), exact_kernels(spec, x))
        assert max(errors) < BOUND[dtype], f"{phi}: NNGP, NTK off by {errors[0]:.1e}, {errors[1]:.1e}"


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("phi", EACH, ids=repr)
def test_degenerate_rows(phi: mn.Activation, dtype: Any) -> None:
    """Compare kernels of equal, opposite, nearly parallel, collinear and zero rows with 70-digit values."""
    check_degenerate(phi, dtype)


def test_one_minus_the_correlation_is_not_good_enough() -> None:
    """With p' = (1 - c') / 2 from the textbook E phi(u) phi(u'), a ReLU amplifies rounding errors to over 1e-9."""
    x = modest_rows(np.float64)[[0, 2, 4, 5, 6, 7, 8]]
    truth = exact_kernels(network(mn.Rbf(0.5), mn.ReLU()), x)
    assert max(largest_errors(an.kernel(network(mn.Rbf(0.5), mn.ReLU())).both(x), truth)) < 1e-12
    assert max(largest_errors(an.kernel(network(Textbook(mn.Rbf(0.5)), mn.ReLU())).both(x), truth)) > 1e-9


@pytest.mark.parametrize(
    "phi", [EACH[0], *(pytest.param(a, marks=pytest.mark.slow) for a in KINDS[1:3]), EACH[4]], ids=repr
)
def test_images(phi: mn.Activation) -> None:
    """Closed forms are accurate in image networks, for equal, opposite, nearly equal and black images."""
    rng = np.random.default_rng(0)
    x = 0.7 * rng.standard_normal((5, 3, 4, 2))
    x[1], x[2], x[3] = x[0], -x[0], 0
    x[4] = x[0] + 1e-6 * x[4]
    conv = mn.Conv2d(4, 3, w_std=1.1, b_std=0.2)
    for body in ((conv, mn.ReLU(), conv, phi), (conv, phi, mn.AvgPool(2), conv, mn.ReLU())):
        spec = mn.Sequential(*body, mn.GlobalAvgPool(), mn.Dense(1))
        got, truth = an.kernel(spec).both(x), image_kernels(spec, x)
        assert max(image_errors(got, truth)) < 1e-8, "between images: the documented bound"
        four = [(nngp[:4, :4], ntk[:4, :4]) for nngp, ntk in (got, truth)]
        assert max(image_errors(*four)) < 1e-9, "equal, opposite and black ones"


def test_sign_has_an_nngp_and_no_ntk() -> None:
    """After Sign, the NNGP is 1 - 2 a / pi at angle a, to 1e-11. The NTK raises an error, even in a residual branch."""
    spec = network(mn.Sign(), b_std=0.0)
    x = degenerate_rows(np.random.default_rng(1))
    kernel = an.kernel(spec)
    nngp, truth = kernel.nngp(x), exact_kernels(spec, x)[0]
    assert largest_errors((nngp, nngp), (truth, truth))[0] < 1e-11
    branch = mn.Sequential(mn.Dense(4), mn.Residual(mn.Sequential(mn.Sign(), mn.Dense(4))), mn.Dense(1))
    calls: list[Any] = [kernel.ntk, kernel.both, kernel.diag, an.kernel(branch).ntk]
    for call in calls:
        with pytest.raises(mn.UnsupportedLayer, match=r"Sign has no tangent kernel: .* Take \.nngp"):
            call(x)
    grey = np.random.default_rng(0).standard_normal((3, 4, 4, 1))
    conv = mn.Sequential(mn.Conv2d(4), mn.Sign(), mn.GlobalAvgPool(), mn.Dense(1))
    k = image_kernels(conv, grey)[0]
    assert image_errors((an.kernel(conv).nngp(grey),) * 2, (k, k))[0] < 1e-13


def test_networks_of_signs_have_the_nngp_on_average() -> None:
    """Compare the mean over 8000 networks with the NNGP. The check fails if the kernel is a fifth larger."""
    spec, x = mn.Sequential(mn.Dense(20, b_std=0.4), mn.Sign(), mn.Dense(1, b_std=0.4)), inputs()
    net, upper = mn.Network(spec, x.shape[1:]), np.triu_indices(len(x))
    samples = mn.nngp(net, net.init(np.random.default_rng(0), ensemble=8000), x)[:, *upper]
    truth = an.kernel(spec).nngp(x)[upper]
    assert_mean("NNGP of Sign", samples, truth)
    with pytest.raises(AssertionError, match="NNGP of Sign"):
        assert_mean("NNGP of Sign", samples, 1.2 * truth)


def test_a_kernel_of_gaussian_shape() -> None:
    """Rbf's NNGP is exp(-gamma w^2 |x - x'|^2 / d). Hermite's dual at unit variances and correlation c is c^n."""
    x = np.random.default_rng(0).standard_normal((6, 3))
    k = an.kernel(mn.Sequential(mn.Dense(8, w_std=1.5), mn.Rbf(0.4), mn.Dense(1))).nngp(x)
    np.testing.assert_allclose(k, np.exp(-0.4 * 1.5**2 * ((x[:, None] - x) ** 2).sum(-1) / 3), rtol=0, atol=1e-14)
    unit = x * sqrt(3) / np.linalg.norm(x, axis=1, keepdims=True)
    h = an.kernel(mn.Sequential(mn.Dense(8), mn.Hermite(5), mn.Dense(1))).both(unit)
    c = unit @ unit.T / 3
    np.testing.assert_allclose(h.nngp, c**5, rtol=0, atol=1e-12)
    np.testing.assert_allclose(h.ntk, 6 * c**5, rtol=0, atol=1e-11)


def test_a_sine_of_frequency_zero() -> None:
    """At the frequencies 0 and 1e-100, the NNGP and the NTK are constant."""
    x = np.random.default_rng(0).standard_normal((3, 4))
    for b in (0.0, 1e-100):
        got = an.kernel(mn.Sequential(mn.Dense(8), mn.Sin(2.0, b, 1.0), mn.Dense(1))).both(x)
        np.testing.assert_allclose(got, np.full((2, 3, 3), (2 * np.sin(1.0)) ** 2), rtol=1e-14)


# ------------------------------------------------------------------------------------------ Kernel.error


def test_the_error_of_a_constant_is_none() -> None:
    x = np.random.default_rng(0).standard_normal((4, 3))
    kernel = an.kernel(network(mn.Monomial(0)))
    assert kernel.error(x) < 1e-14
    np.testing.assert_allclose(kernel.nngp(x), np.full((4, 4), 1 + 0.3**2), rtol=1e-13)


def test_the_error_holds_at_the_worst_angle_and_falls_with_the_correlation() -> None:
    """Compare the kernels of relu^2 by quadrature with their closed forms.

    At correlation c, errors are at most `Kernel.error` times |c|^1024. The NTK's reaches `Kernel.error` / 100.
    """
    phi = mn.RectifiedMonomial(2)
    c = np.array([0.6, 0.99, 0.999, 0.9999, 0.99999])
    x = sqrt(2) * np.concatenate([[[1.0, 0.0]], np.stack([c, np.sqrt(1 - c * c)], axis=1)])
    plain = an.kernel(mn.Sequential(mn.Dense(1), Plain(phi), mn.Dense(1)))
    with pytest.warns(UserWarning, match="at the worst angle"):
        got = plain.both(x)
    want = an.kernel(mn.Sequential(mn.Dense(1), phi, mn.Dense(1))).both(x)
    error = plain.error(x)
    assert error > 1e-8
    for a, b in zip(got, want, strict=True):
        off = np.abs(a - b)[0, 1:] / b[0, 0]
        assert np.all(off <= error * c**1024 + 1e-13)
        assert off[0] < 1e-14
    assert off.max() > error / 100  # the NTK's stated error is not too large


def test_the_error_knows_what_the_axis_leaves_out() -> None:
    """The error of E exp(4 z)^2, whose mass is near z = 8, is small, because the axis of z extends that far.

    For E exp(12 z)^2, where exp overflows on the axis that is needed, an error is raised.
    """
    x = np.array([[4.0], [3.0]])
    plain, exact = (an.kernel(mn.Sequential(mn.Dense(1), phi, mn.Dense(1))) for phi in (Plain(mn.Exp()), mn.Exp()))
    assert relative(plain.both(x), exact.both(x)) < plain.error(x) < 1e-13
    assert exact.error(x) < 1e-14
    with pytest.raises(FloatingPointError, match="overflows there; scale the inputs"):
        plain.both(3 * x)


def h(degree: int) -> list[Any]:
    """Return the coefficients of the normalised Hermite polynomial h_degree in powers of x, to 60 digits."""
    coef = [mp.mpf(0)] * (degree + 1)
    for k in range(degree // 2 + 1):
        coef[degree - 2 * k] = (-0.5) ** k * mp.sqrt(factorial(degree)) / (factorial(k) * factorial(degree - 2 * k))
    return coef


def series(coef: list[Any], q: Any) -> list[Any]:
    """Return a_n = E phi(sqrt(q) z) h_n(z) of a polynomial, using z^m = sum_j m! / (2^j j! (m - 2j)!) He_{m-2j}(z)."""
    a = [mp.mpf(0)] * len(coef)
    for m, c in enumerate(coef):
        for j in range(m // 2 + 1):
            n = m - 2 * j
            a[n] += c * mp.sqrt(q) ** m * factorial(m) / (mp.mpf(2) ** j * factorial(j) * mp.sqrt(factorial(n)))
    return a


def polynomial_kernels(coef: list[Any], x: Array) -> tuple[Array, Array]:
    """Return K and Theta of the network (Dense, the polynomial, Dense) from Hermite series."""
    k = [[mp.fsum(mp.mpf(float(a)) * mp.mpf(float(b)) for a, b in zip(u, v)) / len(u) for v in x] for u in x]
    found = []
    for c in (coef, [n * c for n, c in enumerate(coef)][1:]):
        a = [series(c, k[i][i]) for i in range(len(x))]
        found.append(
            np.array(
                [
                    [mp.fsum(u * v * (k[i][j] / mp.sqrt(k[i][i] * k[j][j])) ** n for n, (u, v) in enumerate(zip(*ab)))
                     for j in range(len(x)) for ab in [(a[i], a[j])]]
                    for i in range(len(x))
                ]
            )
        )  # fmt: skip
    return found[0], found[0] + np.array(k) * found[1]


def error_holds(phi: Any, coef: list[Any], x: Array) -> tuple[float, float]:
    """Return the largest error of the NNGP and the NTK, and `Kernel.error`."""
    kernel = an.kernel(mn.Sequential(mn.Dense(8), phi, mn.Dense(1)))
    with mp.workdps(60), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the stated error is large
        found = 0.0
        for got, want in zip(kernel.both(x), polynomial_kernels(coef, x), strict=True):
            scale = np.array([mp.sqrt(v) for v in want.diagonal()])
            found = max(found, float(np.abs((got - want) / scale[:, None] / scale).max()))
        return found, kernel.error(x)


@pytest.mark.parametrize("degree", [5, 30, 60])
def test_the_error_of_polynomials_in_60_digits(degree: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In powers of x, cancellation leaves h_60 only five digits. The recurrence is accurate to 2e-13."""
    x = np.array([[1.0, 1.0], [1.0, -0.5], [0.999, 1.001]])
    with mp.workdps(60):
        coef = h(degree)
    found, stated = error_holds(mn.Hermite(degree), coef, x)
    assert found < stated + 2e-14 < 2e-13
    powers = tuple(map(float, coef))
    found, stated = error_holds(mn.Polynomial(powers), [mp.mpf(c) for c in powers], x)
    assert found < stated + 2e-14 < 1e3 * found + 1e-12
    if degree == 30:
        monkeypatch.setattr(quadrature, "LAST_END", quadrature.END_OF_AXIS)  # planted: an axis that ends too early
        found, stated = error_holds(mn.Hermite(degree), coef, x)
        assert found > 1e-3


@pytest.mark.parametrize("w", [10.0, 1e4])
def test_diagonals_are_exact_where_the_series_is_not(w: float) -> None:
    """The diagonals E tanh^2 and E sech^4 are separate integrals, accurate to 1e-14 without a warning.

    The kernel between two different rows causes a warning.
    """
    k, x = an.kernel(mn.Sequential(mn.Dense(8, w_std=w), mn.Tanh(), mn.Dense(1))), np.array([[1.0, 1.0]])
    near = np.array([[1.0, 1.0 + 1e-3]])
    with mp.workdps(30):
        ends = sorted({v * s for v in (0, 1 / w, 3 / w, 10 / w, 30 / w, 0.1, 1, 3, 6, 12) for s in (1, -1)})
        V, D = (
            mp.quad(lambda z, f=f: f(w * z) * mp.npdf(z), ends)
            for f in (lambda u: mp.tanh(u) ** 2, lambda u: mp.sech(u) ** 4)
        )
    np.testing.assert_allclose(k.diag(x), [[float(V)], [float(V + w**2 * D)]], rtol=1e-14)
    with pytest.warns(UserWarning, match="at the worst angle"):
        k.nngp(x, near)


def test_the_errors_of_layers_add_up() -> None:
    x = np.random.default_rng(0).standard_normal((4, 3))
    one, two, four = (an.kernel(network(*n * [Plain(mn.ReLU())], b_std=0.0)).error(x) for n in (1, 2, 4))
    assert two == pytest.approx(2 * one, rel=0.01)
    assert four == pytest.approx(4 * one, rel=0.01)
