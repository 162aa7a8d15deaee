"""Test dual activations and their derivatives against integrals over the plane, such as E phi(u) phi(v)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.recursion import quadrature
from analytic.recursion.steep import Steep
from minintk.arrays import array_namespace
from minintk.layers.activation import Pointwise, pointwise
from minintk.spec.layers import Activation
from tests.kit.oracles_kernels import gaussian_nodes, quadrature_dual
from tests.kit.thinned import thinned

XP = array_namespace(np.ones(1))

SMOOTH = [mn.Erf(), mn.GELU(), mn.Sin(), mn.Tanh(), mn.Sigmoid(), mn.Softplus(), mn.Softplus(2.0, 1.3), mn.Identity()]


def plane(activation: Activation, q1: float, q2: float, c: float) -> tuple[float, float]:
    """Return E phi(u) phi(v) and E phi'(u) phi'(v) at variances q1, q2 and correlation c."""
    f = pointwise(activation)
    return tuple(quadrature_dual(g, q1, q2, c) for g in (lambda x: f.phi(XP, x), lambda x: f.derivative(XP, x)))  # type: ignore[return-value]


def pair(q1: float, q2: float, c: float) -> Any:
    """Return two inputs, d = 2, with variances q1, q2 and correlation c after a Dense layer with w_std = 1."""
    return np.sqrt(2) * np.array([[np.sqrt(q1), 0.0], [np.sqrt(q2) * c, np.sqrt(q2) * np.sqrt((1 - c) * (1 + c))]])


def check_dual(kernel: Callable[[Any], Any], activation: Activation, q1: float, q2: float, c: float) -> None:
    """Check K = E phi phi and Theta = K + k_0 E phi' phi' of Dense-phi-Dense to 1e-11, where k_0 = E u v."""
    k, t = kernel(pair(q1, q2, c))
    want, slope = plane(activation, q1, q2, c)
    for got, exact, scale in ((k, want, k), (t, want + np.sqrt(q1 * q2) * c * slope, t)):
        error = abs(got[0, 1] - exact) / np.sqrt(scale[0, 0] * scale[1, 1])
        assert error < 1e-11, f"{activation}: off by {error:.1e}"


@pytest.mark.parametrize(
    ("activation", "c"), thinned(product(SMOOTH, (-1.0, -0.97, -0.3, 0.0, 0.6, 0.999, 1.0))), ids=str
)
def test_smooth(activation: Activation, c: float) -> None:
    kernel = an.kernel(mn.Sequential(mn.Dense(1), activation, mn.Dense(1))).both
    for q1, q2 in ((1.0, 1.0), (0.3, 2.0), (1e-3, 0.5)):
        check_dual(kernel, activation, q1, q2, c)


def test_the_check_refuses_another_activation() -> None:
    kernel = an.kernel(mn.Sequential(mn.Dense(1), mn.Tanh(), mn.Dense(1))).both
    with pytest.raises(AssertionError, match="off by"):
        check_dual(kernel, mn.Erf(), 1.0, 1.0, 0.3)


@pytest.mark.parametrize("activation", [mn.ReLU(), mn.LeakyReLU(0.2), mn.LeakyReLU(-0.7), mn.Abs()], ids=str)
def test_homogeneous(activation: Activation) -> None:
    """Compare kernels of activations with phi(r x) = r phi(x), r > 0, with quadrature over pieces between kinks."""
    f = pointwise(activation)
    kernel = an.kernel(mn.Sequential(mn.Dense(1), activation, mn.Dense(1))).both
    for angle in (0.0, 0.1, 1.0, 2.0, 3.1, np.pi):
        ends = np.sort(
            np.concatenate(
                ([0, 2 * np.pi], *[(kink + np.array([0, angle])) % (2 * np.pi) for kink in (np.pi / 2, 3 * np.pi / 2)])
            )
        )
        x, w = np.polynomial.legendre.leggauss(30)
        s = ((ends[1:] + ends[:-1])[:, None] / 2 + (ends[1:] - ends[:-1])[:, None] / 2 * x).ravel()
        w = ((ends[1:] - ends[:-1])[:, None] / 2 * w).ravel() / (2 * np.pi)
        u, v = np.cos(s), np.cos(s - angle)
        want = 2 * np.sum(w * f.phi(XP, u) * f.phi(XP, v))
        slope = np.sum(w * f.derivative(XP, u) * f.derivative(XP, v))
        k, t = kernel(np.sqrt(2) * np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]]))
        assert k[0, 1] == pytest.approx(want, abs=1e-14)
        assert t[0, 1] == pytest.approx(want + np.cos(angle) * slope, abs=1e-14)


@dataclass(frozen=True)
class Wavelet(Activation):
    """phi(x) = x exp(-x^2 / 2), a user's activation, registered with its derivative."""


@pointwise.register
def _(layer: Wavelet) -> Pointwise:
    return Pointwise(lambda xp, x: x * xp.exp(-x * x / 2), lambda xp, x: (1 - x * x) * xp.exp(-x * x / 2))


@dataclass(frozen=True)
class Clipped(Activation):
    """phi(x) = min(max(x, -1), 1), with kinks at +-1."""


@pointwise.register
def _(layer: Clipped) -> Pointwise:
    return Pointwise(
        lambda xp, x: xp.clip(x, -1, 1), lambda xp, x: xp.astype((x > -1) & (x < 1), x.dtype), "x", (-1.0, 1.0)
    )


@dataclass(frozen=True)
class Elu(Activation):
    """phi(x) = x for x > 0, exp(x) - 1 otherwise. phi'' jumps at 0."""


@pointwise.register
def _(layer: Elu) -> Pointwise:
    return Pointwise(
        lambda xp, x: xp.where(x > 0, x, xp.expm1(xp.minimum(x, 0))),
        lambda xp, x: xp.where(x > 0, xp.ones_like(x), xp.exp(xp.minimum(x, 0))),
        "x",
        (0.0,),
    )


def test_kinks_of_rows_of_one_norm_stand_where_those_of_others_do() -> None:
    """Rows of one norm share a series, whose coefficients are integrals between kinks that depend on the norm."""
    kernel = an.kernel(mn.Sequential(mn.Dense(1), Clipped(), mn.Dense(1)))
    x = np.array([[1.0, 0.0], [0.6, 0.8], [2.0, 1.0]])
    with pytest.warns(UserWarning, match="exact to"):
        alone, beside = kernel.both(x[:2]), kernel.both(x)
    for a, b in zip(alone, beside, strict=True):
        np.testing.assert_allclose(a, b[:2, :2], rtol=0, atol=kernel.error(x))


def test_an_activation_from_outside() -> None:
    kernel = an.kernel(mn.Sequential(mn.Dense(1), Wavelet(), mn.Dense(1)))
    for c in (-0.9, 0.2, 0.99):
        for q1, q2 in ((1.0, 1.0), (0.5, 1.5)):
            check_dual(kernel.both, Wavelet(), q1, q2, c)
    assert kernel.error(np.eye(2)) < 1e-13


def test_an_activation_that_is_registered_again_has_another_kernel() -> None:
    """If another phi is registered for a class, as when an edited notebook cell runs again, the kernel changes."""

    class Mine(Activation):
        pass

    spec, x = mn.Sequential(mn.Dense(4), Mine(), mn.Dense(1)), np.eye(2) + 0.5
    for phi, dphi, same in ((np.tanh, lambda x: 1 - np.tanh(x) ** 2, mn.Tanh()), (np.sin, np.cos, mn.Sin())):
        pointwise.register(Mine, lambda layer, f=phi, df=dphi: Pointwise(lambda xp, x: f(x), lambda xp, x: df(x)))
        want = an.Kernel(mn.Sequential(mn.Dense(4), same, mn.Dense(1))).ntk(x)
        np.testing.assert_allclose(an.Kernel(spec).ntk(x), want, rtol=1e-12)


def test_closed_form_against_series() -> None:
    """Compare the closed form for erf with quadrature for the same phi."""
    from analytic.recursion.quadrature import Quadrature
    from analytic.recursion.rules import lower

    @dataclass(frozen=True)
    class Plain(Activation):
        pass

    pointwise.register(Plain, lambda layer: pointwise(mn.Erf()))
    assert isinstance(lower(Plain(), None, None)[0], Quadrature)  # type: ignore[arg-type]
    x = np.random.default_rng(0).normal(size=(8, 3))
    x[1] = x[0] * (1 + 1e-9)
    x[2] = -x[3]
    specs = [
        mn.Sequential(mn.Dense(9, w_std=1.2, b_std=0.1), phi, mn.Dense(9), phi, mn.Dense(1))
        for phi in (mn.Erf(), Plain())
    ]
    for one, two in zip(*(an.kernel(spec).both(x) for spec in specs)):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-13)


def test_tanh_at_sigma_one_and_a_half() -> None:
    """For three tanh layers with w_std^2 = 1.5, the stated error is below 1e-10 and the true error below 1e-13."""
    w = 1.5**0.5
    spec = mn.Sequential(*[mn.Dense(9, w_std=w), mn.Tanh()] * 3, mn.Dense(1, w_std=w))
    x = np.sqrt(2) * np.array([[1.0, 0.0], [np.cos(1.0), np.sin(1.0)]])
    k, t = an.kernel(spec).both(x)
    assert an.kernel(spec).error(x) < 1e-10
    q, cross, theta = 1.5, 1.5 * np.cos(1.0), 1.5 * np.cos(1.0)
    for _ in range(3):
        (same, _), (value, slope) = plane(mn.Tanh(), q, q, 1.0), plane(mn.Tanh(), q, q, cross / q)
        q, cross = 1.5 * same, 1.5 * value
        theta = cross + 1.5 * theta * slope
    assert k[0, 1] == pytest.approx(cross, abs=1e-13)
    assert t[0, 1] == pytest.approx(theta, abs=1e-13)


def test_a_kinked_activation_states_its_error() -> None:
    kernel = an.kernel(mn.Sequential(mn.Dense(1), Clipped(), mn.Dense(1)))
    x = pair(1.0, 2.0, 0.6)
    with pytest.warns(UserWarning, match="is by quadrature and exact to .* only"):
        k, _ = kernel.both(x)
    stated = kernel.error(x)
    assert 1e-8 < stated < 0.05
    z, w = gaussian_nodes(4800, 4)  # phi has kinks: fine panels
    inner = [np.sum(w * np.clip(np.sqrt(2.0) * (0.6 * a + 0.8 * z), -1, 1)) for a in z[::1]]
    want = np.sum(w * np.clip(z, -1, 1) * np.array(inner))
    assert abs(k[0, 1] - want) < stated * np.sqrt(k[0, 0] * k[1, 1])


def tanh_kernels(q: float, c: Any) -> tuple[Any, Any]:
    """Return E tanh(u) tanh(v) and E tanh'(u) tanh'(v) at correlation c, as means over erfs, which have closed forms.

    A logistic variable is 2 K z, with z normal and K from Kolmogorov's distribution (Andrews, Mallows 1974). So tanh(u)
    is the mean of erf(u / (K sqrt 2)). For K and L, the dual of erf is 2/pi arcsin(q c / sqrt((K^2 + q) (L^2 + q))).
    """
    x, w = np.polynomial.legendre.leggauss(120)
    K, j = 3.08 + 2.92 * x, np.arange(1, 60)[:, None]
    w = 2.92 * w * 8 * K * np.sum((-1.0) ** (j - 1) * j * j * np.exp(-2 * j * j * K * K), axis=0)
    scale = np.sqrt(np.multiply.outer(K * K + q, K * K + q))[..., None]
    value, slope = np.arcsin(q * c / scale), 1 / np.sqrt((scale - q * c) * (scale + q * c))
    k, dk = (2 / np.pi * np.einsum("i,j,ijc->c", w, w, each) for each in (value, slope))
    return k, dk


@pytest.mark.parametrize("w_std", [3.0, 10.0, 30.0, 100.0])
def test_large_preactivations_state_their_error(w_std: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """At correlation c, errors are at most `Kernel.error` times |c|^1024. The NTK's can reach `Kernel.error` / 50.

    At angles of at least 0.27 from 0 and pi, there is only rounding error. This test uses only the series, as for rows
    of several norms. `test_steep` tests rows of one norm.
    """
    monkeypatch.setattr(Steep, "of", staticmethod(lambda *_: None))
    angles = np.array([1e-3, 0.01, 0.03, 0.1, 0.27, 1.0, np.pi - 0.27, np.pi - 0.03, np.pi - 1e-3])
    x = np.sqrt(2) * np.stack([np.cos(np.append(0, angles)), np.sin(np.append(0, angles))], axis=1)
    kernel = an.kernel(mn.Sequential(mn.Dense(1, w_std=w_std), mn.Tanh(), mn.Dense(1)))
    q, c, error = w_std**2, np.cos(np.append(0, angles)), kernel.error(x)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        got = kernel.both(x)
    assert len(told) == (w_std > 3)
    k, slope = tanh_kernels(q, c)
    for found, want in zip(got, (k, k + q * c * slope), strict=True):
        off = np.abs(found[0] - want) / want[0]
        assert np.all(off <= error * np.abs(c) ** 1024 + 1e-12)
        assert off[5:8].max() < 1e-12
        assert np.all(off[[8, 9]] <= 1.1 * off[[3, 1]] + 1e-12)  # tanh is odd, tanh' even: one term covers both
    assert error < 1e-11 or off.max() > error / 50  # the NTK's stated error is not too large


def test_rounding_does_not_hide_that_tanh_is_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some BLAS libraries return even coefficients of 1e-16 instead of 0, which would give phi' an odd extra term."""
    right = quadrature.hermite
    monkeypatch.setattr(Steep, "of", staticmethod(lambda *_: None))
    monkeypatch.setattr(quadrature, "hermite", lambda *given: right(*given) + 5e-16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = an.kernel(mn.Sequential(mn.Dense(1, w_std=10.0), mn.Tanh(), mn.Dense(1))).both(pair(1.0, 1.0, -1.0))
    for k in found:
        assert k[0, 1] == pytest.approx(-k[0, 0], rel=1e-12)


def test_a_softer_kink() -> None:
    kernel = an.kernel(mn.Sequential(mn.Dense(1), Elu(), mn.Dense(1)))
    x = pair(1.0, 1.0, 0.3)
    with pytest.warns(UserWarning, match="kinks"):
        k, _ = kernel.both(x)
    want, _ = plane(Elu(), 1.0, 1.0, 0.3)
    assert abs(k[0, 1] - want) < 1e-6


def test_rows_of_zeros_by_quadrature() -> None:
    x = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.5]])
    for phi, at_zero in ((mn.Tanh(), 0.0), (mn.Sigmoid(), 0.25)):
        k, t = an.kernel(mn.Sequential(mn.Dense(5), phi, mn.Dense(1))).both(x)
        assert np.isfinite(k).all()
        assert k[0, 0] == pytest.approx(at_zero, abs=1e-15)
        assert t[0, 0] == pytest.approx(at_zero, abs=1e-15)


def test_an_activation_that_overflows_says_so() -> None:
    @dataclass(frozen=True)
    class Exp(Activation):
        pass

    pointwise.register(Exp, lambda layer: Pointwise(lambda xp, x: xp.exp(x), lambda xp, x: xp.exp(x)))
    with np.errstate(over="ignore"), pytest.raises(FloatingPointError, match=r"Exp: .*not finite"):
        an.kernel(mn.Sequential(mn.Dense(1, w_std=1e3), Exp(), mn.Dense(1))).nngp(np.eye(2))
