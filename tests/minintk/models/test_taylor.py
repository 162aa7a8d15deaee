"""Test Taylor expansions: power series of activations, laws of the model, an independent oracle, and planted errors."""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, sqrt
from types import SimpleNamespace
from typing import Any

import autograd.numpy as anp
import mpmath
import numpy as np
import pytest
from autograd import grad
from autograd.scipy.special import erf
from hypothesis import given, settings
from hypothesis import strategies as st

import minintk as mn
from minintk import testing
from minintk.layers.activation import Pointwise, pointwise
from minintk.layers.contract import bind
from minintk.models import power_series as series
from minintk.models import taylor
from minintk.models.power_series import expanded
from minintk.spec.shapes import out_shape
from minintk.testing import assert_close, roundings
from tests.kit.strategies import ACTIVATIONS, MORE, SMOOTH, Case, cases
from tests.kit.thinned import few

Array = np.ndarray[Any, Any]
Patch = pytest.MonkeyPatch

# ------------------------------------------------------------------------------- series of activations

PHI: dict[mn.spec.Activation, Callable[[Any], Any]] = {
    mn.Tanh(): mpmath.tanh,
    mn.Sigmoid(): lambda x: 1 / (1 + mpmath.exp(-x)),
    mn.Erf(): mpmath.erf,
    mn.GELU(): lambda x: x * mpmath.ncdf(x),
    mn.Sin(): mpmath.sin,
    mn.Softplus(beta=5.0, scale=1.4): lambda x: mpmath.mpf(1.4) / 5 * mpmath.log(1 + mpmath.exp(5 * x)),
    mn.Cos(1.2, 0.7, 0.3): lambda x: mpmath.mpf(1.2) * mpmath.cos(mpmath.mpf(0.7) * x + mpmath.mpf(0.3)),
    mn.Rbf(0.6): lambda x: mpmath.sqrt(2) * mpmath.sin(mpmath.sqrt(1.2) * x + mpmath.pi / 4),
    mn.Exp(0.7, 0.5): lambda x: mpmath.mpf(0.7) * mpmath.exp(0.5 * x),
    mn.Gaussian(1.2, -0.4): lambda x: mpmath.mpf(1.2) * mpmath.exp(-mpmath.mpf(0.4) * x * x),
    mn.Polynomial((0.3, -0.8, 0.2, 0.1)): lambda x: 0.3 + x * (-0.8 + x * (0.2 + x * mpmath.mpf(0.1))),
    mn.Monomial(0): lambda x: 1 + 0 * x,
    mn.Hermite(0): lambda x: 1 + 0 * x,
    mn.Hermite(6): lambda x: mpmath.hermite(6, x / mpmath.sqrt(2)) / mpmath.sqrt(64 * 720),
    mn.RectifiedMonomial(3): lambda x: x**3 if x > 0 else 0 * x,
    mn.Swish(1.5): lambda x: x / (1 + mpmath.exp(-1.5 * x)),
}


def coefficients(phi: mn.spec.Activation, x: list[float]) -> tuple[Array, Array]:
    """Return the layer's coefficients y of phi(x(t)) and p of phi'(x(t)), with zeros for None."""
    y, p = expanded(phi, np, [np.array([c]) for c in x])
    return tuple(np.array([0.0 if c is None else c[0] for c in a]) for a in (y, p))  # type: ignore[return-value]


@pytest.mark.parametrize("phi", PHI, ids=repr)
@given(st.floats(-3, 3), st.lists(st.floats(-1, 1), min_size=6, max_size=6))
@settings(max_examples=10)
def test_series_of_smooth_activations(phi: mn.spec.Activation, x0: float, rest: list[float]) -> None:
    """Coefficients of phi(x(t)) up to t^6 and of phi'(x(t)) up to t^5 equal mpmath's (40 digits) to 1e-9."""
    x0 += float(abs(x0) < 1e-2 and bool(pointwise(phi).kinks))  # stay on one side of a kink
    with mpmath.workdps(40):

        def y(t: Any) -> Any:
            return PHI[phi](mpmath.mpf(x0) + sum(mpmath.mpf(c) * t ** (j + 1) for j, c in enumerate(rest)))

        def p(t: Any) -> Any:
            at = mpmath.mpf(x0) + sum(mpmath.mpf(c) * t ** (j + 1) for j, c in enumerate(rest))
            return mpmath.diff(PHI[phi], at)

        want = [[float(c) for c in mpmath.taylor(f, 0, n)] for f, n in ((y, 6), (p, 5))]
    for got, exact in zip(coefficients(phi, [x0, *rest]), want, strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(exact).max()))


@pytest.mark.parametrize("phi", [mn.ReLU(), mn.LeakyReLU(0.2), mn.Abs(), mn.Identity()], ids=repr)
def test_series_of_pieces(phi: mn.spec.Activation) -> None:
    """For piecewise linear phi, y_j = phi'(x_0) x_j for j >= 1."""
    for x0 in (-1.5, 2.0):
        point, x = pointwise(phi), np.array([x0])
        y, p = coefficients(phi, [x0, 0.3, -0.7, 2.0])
        slope = point.derivative(np, x)[0]
        np.testing.assert_allclose(y, [point.phi(np, x)[0], slope * 0.3, -slope * 0.7, slope * 2.0])
        np.testing.assert_allclose(p, [slope, 0.0, 0.0])


@given(st.lists(st.floats(-2, 2), min_size=4, max_size=4), st.lists(st.floats(-2, 2), min_size=4, max_size=4))
def test_products_and_roots_of_series(a: list[Any], b: list[Any]) -> None:
    np.testing.assert_allclose(np.array(series.times(a, b), float), np.convolve(a, b)[:4], atol=1e-12)
    v = [a[0] ** 2 + 1, *a[1:]]
    r = series.inverse_root(v)
    one = np.array(series.times(series.times(r, r), v), float)
    np.testing.assert_allclose(one, [1, 0, 0, 0], atol=1e-10)


# ---------------------------------------------------------------------------------- laws of the model


def near(case: Case, size: float = 0.3) -> Array:
    return np.asarray(case.theta + size * case.rng.standard_normal(case.theta.shape))


@settings(max_examples=few(25))
@given(cases(), st.integers(1, 3))
def test_laws(case: Case, order: int) -> None:
    """Taylor expansions satisfy the laws, for random specs on vector inputs and random parametrizations."""
    model, theta = mn.Taylor(case.net, case.theta, order), near(case)
    testing.check_adjoint(model, theta, case.x, case.rng)
    testing.check_derivative(model, theta, case.x, case.rng)
    testing.check_gram(model, theta, case.x, case.rng)
    testing.check_stacked(model, theta, case.x, case.rng)
    testing.check_blocks(model, theta, case.x, case.rng)
    if theta.ndim == 2:
        testing.check_ensemble(model, theta, case.x, case.rng)


IMAGES = {
    "everything": mn.Sequential(
        mn.Conv2d(3, 3, b_std=0.3), mn.Tanh(), mn.AvgPool(2, padding=1, normalize_edges=True),
        mn.LayerNorm(eps=0.01, axes=(-3, -2, -1)),
        mn.Residual(mn.Sequential(mn.Conv2d(3, 3, padding="circular", b_std=0.2), mn.Sigmoid())),
        mn.MaxPool(2, stride=1), mn.Conv2d(4, 2, stride=2, padding="valid"), mn.GELU(), mn.GlobalAvgPool(),
        mn.Dense(2, b_std=0.1),
    ),
    "flattened": mn.Sequential(
        mn.Conv2d(2, (3, 1), stride=(1, 2)), mn.LeakyReLU(0.1), mn.Conv2d(2, 2, b_std=1.0, b_init="zeros"),
        mn.Flatten(), mn.Dense(3, b_std=0.5), mn.LayerNorm(eps=0.1), mn.Dense(2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("ensemble", [None, 2])
@pytest.mark.parametrize("name", IMAGES)
def test_laws_on_images(name: str, ensemble: int | None, order: int) -> None:
    rng = np.random.default_rng(0)
    net = mn.Network(IMAGES[name], (6, 6, 2))
    theta0, x = net.init(rng, ensemble=ensemble), rng.standard_normal((4, 6, 6, 2))
    theta = theta0 + 0.1 * rng.standard_normal(theta0.shape)
    model = mn.Taylor(net, theta0, order)
    laws: list[Any] = [testing.check_adjoint, testing.check_derivative, testing.check_gram, testing.check_stacked]
    for law in laws + ([testing.check_ensemble] if ensemble else []):
        law(model, theta, x, rng)
    if order == 1:
        np.testing.assert_allclose(model(theta, x), mn.Linearized(net, theta0)(theta, x), rtol=1e-12, atol=1e-12)


@given(cases())
def test_order_one_is_linearized(case: Case) -> None:
    lin, model, theta = mn.Linearized(case.net, case.theta), mn.Taylor(case.net, case.theta, 1), near(case)
    (f, J), (g, K) = lin.linearize(theta, case.x), model.linearize(theta, case.x)
    rows = J.dense()
    size = np.abs(f).max() + np.linalg.norm(rows) * np.abs(theta).max()
    slack = roundings(case.net, case.theta, case.x)
    assert_close("Taylor of order 1 = Linearized", g, f, slack * size)
    assert_close("its Jacobian", K.dense(), rows, slack * (np.abs(rows).max() + np.finfo(float).tiny))


def exponent(model: mn.Model, theta: Array, x: Array, order: int, v: Array, steps: tuple[float, float]) -> float:
    """Return the exponent p of the expansion's error, which grows with the step as step^p."""
    expansion = mn.Taylor(model, theta, order)
    far, near = (np.abs(expansion(theta + h * v, x) - model(theta + h * v, x)).max() for h in steps)
    return float(np.log(far / near) / np.log(steps[0] / steps[1]))


@pytest.mark.parametrize("phi", SMOOTH[:-1], ids=repr)
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_the_error_falls_as_the_power_of_the_step(phi: mn.spec.Activation, order: int) -> None:
    """The exponent of the error is order + 1 to within 0.15, which excludes order and order + 2."""
    net = mn.Network(
        mn.Sequential(
            mn.Dense(8, b_std=0.3), phi, mn.Residual(mn.Sequential(mn.Dense(8), phi)), mn.Dense(2, b_std=0.1)
        ),
        (3,),
    )
    rng = np.random.default_rng(0)
    theta, x = net.init(rng), rng.standard_normal((6, 3))
    v = rng.standard_normal(net.size) / sqrt(net.size)
    assert exponent(net, theta, x, order, v, (0.08, 0.04)) == pytest.approx(order + 1, abs=0.15)


@pytest.mark.parametrize("wrap", [lambda m, t: mn.Centred(m, t, 5.0), lambda m, t: mn.Centred(m, t + 0.1, 0.1)])
def test_expansions_nest(wrap: Any) -> None:
    """Taylor of Centred equals Centred of Taylor for equal centres. Other centres give errors of the same order."""
    net = mn.Network(mn.Sequential(mn.Dense(8, b_std=0.3), mn.Tanh(), mn.Dense(2)), (3,))
    rng = np.random.default_rng(0)
    theta0, x = net.init(rng), rng.standard_normal((6, 3))
    theta, v = theta0 + 0.2 * rng.standard_normal(net.size), rng.standard_normal(net.size)
    model = wrap(net, theta0)
    assert exponent(model, theta0, x, 2, v, (0.02, 0.01)) == pytest.approx(3, abs=0.15)
    f, J = mn.Taylor(model, theta0, 2).linearize(theta, x)
    testing.check_gram(mn.Taylor(model, theta0, 2), theta, x, rng)
    if np.array_equal(model.theta0, theta0):
        g, K = mn.Centred(mn.Taylor(net, theta0, 2), theta0, model.alpha).linearize(theta, x)
        np.testing.assert_allclose(f, g, atol=1e-12 * np.abs(f).max() + 1e-14 * model.alpha)
        np.testing.assert_allclose(J.dense(), K.dense(), rtol=1e-12, atol=1e-14)
    linear = mn.Taylor(mn.Linearized(net, theta0 + 0.1), theta0, 3)
    np.testing.assert_allclose(linear(theta, x), mn.Linearized(net, theta0 + 0.1)(theta, x), rtol=1e-12, atol=1e-13)


def test_a_network_of_pieces_is_its_own_polynomial() -> None:
    """Up to a kink, f of a ReLU or Abs network with L layers has degree L in theta: order L is exact, L - 1 is not."""
    net = mn.Network(mn.Sequential(mn.Dense(6), mn.ReLU(), mn.Dense(6), mn.Abs(), mn.Dense(2)), (3,))
    rng = np.random.default_rng(0)
    theta0, x = net.init(rng), rng.standard_normal((4, 3))
    theta = theta0 + 1e-3 * rng.standard_normal(net.size)
    f = net(theta, x)
    np.testing.assert_allclose(mn.Taylor(net, theta0, 3)(theta, x), f, rtol=0, atol=1e-14)
    np.testing.assert_allclose(mn.Taylor(net, theta0, 5)(theta, x), f, rtol=0, atol=1e-14)
    assert np.abs(mn.Taylor(net, theta0, 2)(theta, x) - f).max() > 1e-11
    far = theta0 + 3.0 * rng.standard_normal(net.size)
    assert np.abs(mn.Taylor(net, theta0, 3)(far, x) - net(far, x)).max() > 0.1


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("name", IMAGES)
def test_at_theta0_it_is_the_network(name: str, order: int) -> None:
    """At theta_0, outputs and kernel equal the network's. Elsewhere the kernel differs if the order is above 1."""
    rng = np.random.default_rng(0)
    net = mn.Network(IMAGES[name], (6, 6, 2))
    theta0, x = net.init(rng), rng.standard_normal((4, 6, 6, 2))
    model = mn.Taylor(net, theta0, order)
    np.testing.assert_allclose(model(theta0, x), net(theta0, x), rtol=0, atol=1e-14)
    kernel, k = mn.ntk_full(net, theta0, x), mn.ntk_full(model, theta0, x)
    np.testing.assert_allclose(k, kernel, atol=1e-13 * np.abs(kernel).max())
    moved = mn.ntk_full(model, theta0 + 0.1 * rng.standard_normal(net.size), x)
    assert order == 1 or np.abs(moved - kernel).max() > 1e-3 * np.abs(kernel).max()


def test_calibrated_batch_normalisation() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(6), mn.BatchNorm(), mn.Tanh(), mn.Dense(1)), (3,))
    rng = np.random.default_rng(0)
    theta0, x = net.init(rng), rng.standard_normal((5, 3))
    frozen = net.calibrate(theta0, x)
    assert exponent(frozen, theta0, x, 2, rng.standard_normal(net.size), (0.02, 0.01)) == pytest.approx(3, abs=0.15)
    with pytest.raises(mn.UnsupportedLayer, match=r"freeze them first, net = net\.calibrate"):
        mn.Taylor(net, theta0, 2)(theta0, x)


@pytest.mark.parametrize("phi", ACTIVATIONS + MORE, ids=repr)
def test_activations_keep_float32(phi: mn.Layer) -> None:
    net = mn.Network(mn.Sequential(mn.Dense(4), phi, mn.Dense(1)), (3,))
    theta, x = net.init(np.random.default_rng(0), dtype="float32"), np.eye(3, dtype=np.float32)
    model = mn.Taylor(net, theta, 2)
    assert model(theta, x).dtype == mn.ntk(model, theta, x).dtype == np.float32


@pytest.mark.parametrize("name", IMAGES)
def test_float32_stays_float32_and_close(name: str) -> None:
    rng = np.random.default_rng(0)
    net = mn.Network(IMAGES[name], (6, 6, 2))
    theta0, x = net.init(rng), rng.standard_normal((4, 6, 6, 2))
    theta = theta0 + 0.1 * rng.standard_normal(net.size)
    f, J = mn.Taylor(net, theta0, 3).linearize(theta, x)
    small = [a.astype(np.float32) for a in (theta0, theta, x)]
    g, K = mn.Taylor(net, small[0], 3).linearize(small[1], small[2])
    assert {a.dtype for a in (g, K.jvp(small[1]), K.vjp(g), K.gram())} == {np.dtype(np.float32)}
    np.testing.assert_allclose(g, f, rtol=0, atol=1e-4 * np.abs(f).max())
    np.testing.assert_allclose(K.gram(), J.gram(), rtol=0, atol=1e-4 * np.abs(J.gram()).max())


def test_training_an_expansion() -> None:
    """Order 1 follows Linearized. Order 3 stays closer to the network than order 2, and order 2 closer than order 1."""
    net = mn.Network(mn.Sequential(mn.Dense(200, b_std=0.1), mn.Erf(), mn.Dense(1)), (3,))
    rng = np.random.default_rng(0)
    theta0, x, y = net.init(rng), rng.standard_normal((8, 3)), rng.standard_normal((8, 1))

    def end(model: mn.Model) -> Array:
        *_, last = mn.train(model, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(lr=0.5), steps=30)
        return np.asarray(last.f)

    own, lin = end(net), end(mn.Linearized(net, theta0))
    paths = [end(mn.Taylor(net, theta0, order)) for order in (1, 2, 3)]
    np.testing.assert_allclose(paths[0], lin, atol=1e-12)
    errors = [float(np.abs(f - own).max()) for f in paths]
    assert errors[0] > 2 * errors[1] > 4 * errors[2], errors


# ------------------------------------------------------------------- an independent oracle: autograd, nested


def dense(w: dict[str, Any], name: str, x: Any, b_std: float) -> Any:
    return anp.dot(x, w[name + ".W"]) / sqrt(x.shape[-1]) + b_std * w[name + ".b"]


def oracle(w: dict[str, Any], x: Any) -> Any:
    """Compute ORACLE with autograd: tanh, then h + erf(Dense(LayerNorm(h))), then softplus."""
    h = anp.tanh(dense(w, "0", x, 0.3))
    c = h - anp.mean(h, axis=-1, keepdims=True)
    n = c / anp.sqrt(anp.mean(c**2, axis=-1, keepdims=True) + 0.05)
    h = h + erf(dense(w, "2.branch.1", n, 0.2))
    return dense(w, "4", anp.log(1 + anp.exp(2 * h)) / 2, 0.1)


ORACLE = mn.Network(
    mn.Sequential(
        mn.Dense(4, b_std=0.3),
        mn.Tanh(),
        mn.Residual(mn.Sequential(mn.LayerNorm(eps=0.05), mn.Dense(4, b_std=0.2), mn.Erf())),
        mn.Softplus(beta=2.0),
        mn.Dense(2, b_std=0.1),
    ),
    (3,),
)


def tensors(theta: Any) -> dict[str, Any]:
    """Split theta in the order of the layout's names, independently of the library."""
    cut, start = {}, 0
    for t in ORACLE.layout.tensors:
        stop = start + int(np.prod(t.shape))
        cut[t.name] = theta[start:stop].reshape(t.shape)
        start = stop
    return cut


def test_against_nested_derivatives_of_autograd() -> None:
    """Every coefficient of t -> f(theta_0 + t d) up to order 4 agrees with autograd.

    The gradient of a sum of coefficients with respect to d agrees too.
    """
    rng = np.random.default_rng(0)
    theta0, d, x = ORACLE.init(rng), rng.standard_normal(ORACLE.size), rng.standard_normal((3, 3))
    y, _ = ORACLE.expand(theta0, d, x, 4)

    def at(j: int, d: Any, u: Array) -> Any:
        """Return the j-th derivative of u . f(theta_0 + t d) at t = 0, divided by j!."""

        def f(t: Any) -> Any:
            return anp.sum(u * oracle(tensors(theta0 + t * d), x))

        for _ in range(j):
            f = grad(f)
        return f(0.0) / factorial(j)

    for j in range(5):
        want = np.array([at(j, d, u.reshape((3, 2))) for u in np.eye(6)]).reshape((3, 2))
        got: Any = y[j]
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-10 * np.abs(want).max())
    u = rng.standard_normal((3, 2))
    _, J = ORACLE.expand(theta0, d, x, 3)
    want = grad(lambda d: at(1, d, u) + at(2, d, u) + at(3, d, u))(d)
    np.testing.assert_allclose(J.vjp(u), want, rtol=0, atol=1e-10 * np.abs(want).max())


# ----------------------------------------------------------------------------------------- planted errors


def laws(order: int = 3) -> None:
    """Check the laws on two networks with many kinds of layers. The laws must fail for the planted errors below."""
    rng = np.random.default_rng(0)
    for net, shape in ((ORACLE, (3,)), (mn.Network(IMAGES["everything"], (6, 6, 2)), (6, 6, 2))):
        theta0, x = net.init(rng), rng.standard_normal((4, *shape))
        model, theta = mn.Taylor(net, theta0, order), theta0 + 0.3 * rng.standard_normal(net.size)
        testing.check_adjoint(model, theta, x, rng)
        testing.check_derivative(model, theta, x, rng)
        testing.check_gram(model, theta, x, rng)
        v = rng.standard_normal(net.size) / sqrt(net.size)
        assert exponent(net, theta0, x, order, v, (0.04, 0.02)) == pytest.approx(order + 1, abs=0.2)


def without_factor(u: Any, p: Any, j: int) -> Any:
    """Return the sum of i u_i p_{j-i} without the factor 1/j."""
    right = series.product([c if c is None else i * c for i, c in enumerate(u)], [*p[:j], None], j)
    return right


def ends(a: Any, b: Any, j: int, weight: Any = None, right: Any = series.product) -> Any:
    """Return only a_0 b_j + a_j b_0, unless the sum is weighted."""
    if weight is not None:
        return right(a, b, j, weight)
    terms = [(a[0], b[j])] + ([(a[j], b[0])] if j else [])
    terms = [(x, y) for x, y in terms if x is not None and y is not None]
    return sum(x * y for x, y in terms) if terms else None


def plain_root(v: Any) -> Any:
    """Return only the first term of 1/sqrt(v)."""
    return [v[0] ** -0.5, *(None for _ in v[1:])]


def unreversed(self: Any, u: Any, dw: Any) -> Any:
    return series.times(self.p, u)


def no_d(self: Any, u: Any, dw: Any) -> Any:
    """Return L(w)' u_j without L(d)' u_{j+1}."""
    right(self, u, dw)
    return None if self.plain.parameters.ends_sweep else [None if c is None else self.at_w.vjp(c, None) for c in u]


right = taylor.BilinearSeries.vjp


def first_only(self: Any, u: Any, other: Any, v: Any, kernel: Any) -> Any:
    """Return only the contribution of the first coefficients to the kernel."""
    return self.inputs[0].gram(u[0], other.inputs[0], v[0], kernel)


PLANTED: dict[str, Callable[[Patch], None]] = {
    "a recurrence without 1/j": lambda patch: patch.setattr(series, "integral", without_factor),
    "LayerNorm with a frozen variance": lambda patch: patch.setattr(taylor, "inverse_root", plain_root),
    "a product's transpose without the reversal": lambda patch: patch.setattr(
        taylor.MultiplicationSeries, "vjp", unreversed
    ),
    "a backward sweep without the moved weights": lambda patch: patch.setattr(taylor.BilinearSeries, "vjp", no_d),
    "a kernel of the first coefficient alone": lambda patch: patch.setattr(taylor.BilinearSeries, "gram", first_only),
    "products of series without their middle terms": lambda patch: patch.setattr(series, "product", ends),
}


def test_the_laws_hold() -> None:
    laws()


@pytest.mark.parametrize("name", PLANTED)
def test_the_laws_refuse(name: str, monkeypatch: Patch) -> None:
    PLANTED[name](monkeypatch)
    with pytest.raises(AssertionError):
        laws()


# ------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("order", [0, -1, 1.5, True, None])
def test_order_is_a_whole_number(order: Any) -> None:
    with pytest.raises(ValueError, match=r"Taylor\(order=\.\.\.\) expects a whole number >= 1, got"):
        mn.Taylor(ORACLE, ORACLE.init(np.random.default_rng(0)), order)


def test_what_has_no_expansion(monkeypatch: Patch) -> None:
    theta = ORACLE.init(np.random.default_rng(0))
    twice = mn.Taylor(mn.Taylor(ORACLE, theta, 2), theta, 2)
    with pytest.raises(mn.UnsupportedLayer, match=r"Taylor\(.*has no Taylor expansion: take mn\.Taylor of the network"):
        twice(theta, np.ones((1, 3)))

    class Cube(mn.spec.Activation):
        pass

    pointwise.register(Cube, lambda layer: Pointwise(lambda xp, x: x**3, lambda xp, x: 3 * x**2))
    net = mn.Network(mn.Sequential(mn.Dense(2), Cube(), mn.Dense(1)), (3,))
    theta = net.init(np.random.default_rng(0))
    with pytest.raises(mn.UnsupportedLayer, match=r"Cube has no Taylor series: register .*power_series\.expanded"):
        mn.Taylor(net, theta, 2)(theta, np.ones((1, 3)))

    class Unexpanded(mn.spec.Layer):
        pass

    out_shape.register(Unexpanded, lambda layer, shape: shape)
    bind.register(Unexpanded, lambda *place: SimpleNamespace(tensors=()))
    net = mn.Network(mn.Sequential(mn.Dense(2), Unexpanded(), mn.Dense(1)), (3,))
    theta = net.init(np.random.default_rng(0))
    with pytest.raises(
        mn.UnsupportedLayer, match=r"has no Taylor expansion: register minintk\.models\.taylor\.expand for it"
    ):
        mn.Taylor(net, theta, 2)(theta, np.ones((1, 3)))


def test_kernel_between_an_expansion_and_a_network() -> None:
    """A kernel between two kinds of models, which is not contracted layer by layer, equals that of dense Jacobians."""
    rng = np.random.default_rng(0)
    theta, x = ORACLE.init(rng), rng.standard_normal((3, 3))
    _, J = mn.Taylor(ORACLE, theta, 2).linearize(1.1 * theta, x)
    _, K = ORACLE.linearize(theta, x[:2])
    want = np.einsum("ncp,mep->ncme", J.dense(), K.dense())
    np.testing.assert_allclose(J.gram(K), want, rtol=0, atol=1e-13 * np.abs(want).max())
    np.testing.assert_allclose(J.trace_gram(K), np.einsum("ncmc->nm", want), rtol=0, atol=1e-13 * np.abs(want).max())
