"""Test the 1/n correction of the mean over networks on exact cases, moments, trained networks and planted errors."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import cache
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import erf

import analytic as an
import minintk as mn
from analytic.limits import one_finite_layer, width_correction
from analytic.limits.one_finite_layer import FiniteLayer, Jet
from analytic.limits.width_correction import WidthCorrection
from minintk.spec.shapes import UnsupportedLayer
from tests.kit.montecarlo import limit

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((4, 3)), np.array([[1.0], [-1.0], [1.0]])  # three training points and one test point


def spec(hidden: int, n: int = 1, phi: mn.spec.Activation | None = None, b_std: float = 0.3) -> mn.Sequential:
    """Return a spec whose scales differ by layer."""
    pairs = ((mn.Dense(n, w_std=1.4 - 0.1 * i, b_std=b_std), phi or mn.Erf()) for i in range(hidden))
    return mn.Sequential(*(layer for pair in pairs for layer in pair), mn.Dense(1, w_std=1.1, b_std=b_std))


def theory(which: mn.Sequential, y: Array = Y, samples: int = 128, **how: Any) -> WidthCorrection:
    return an.width_correction(which, X[:3], y, X[3:], samples=samples, **how)


# ------------------------------------------------------------------------------------------------- exact cases


def test_moments_of_the_two_layer_linear_network() -> None:
    """For f = a.w / sqrt(n), the four moments times n are 0, 4, 4 and 8.

    Theta = (|a|^2 + |w|^2) / n. Derivatives along gradients of f are df = Theta and dTheta = 4 f / n.
    """
    found = an.width_correction(mn.Sequential(mn.Dense(50), mn.Dense(1)), np.ones((1, 1)), np.ones((1, 1)))
    for moment, exact in zip(found.moments, (0, 4, 4, 8), strict=True):
        error = moment.std() / 8**0.5
        assert abs(moment.mean() - exact / 50) <= 6 * error + 1e-12
        assert error < 0.01 * 4 / 50


@pytest.mark.parametrize("hidden", [1, 2, 3])
def test_linear_networks_at_initialisation(hidden: int) -> None:
    """E Theta is the limit at every width, and Var Theta agrees with the exact value of `finite_width`."""
    widths = 1_000_000, 2_000_000, 4_000_000
    scales = 1.3, 0.8, 1.1
    which = mn.Sequential(*(mn.Dense(n, w_std=w) for n, w in zip(widths[:hidden], scales, strict=False)), mn.Dense(1))
    found = an.width_correction(which, np.ones((1, 1)), np.ones((1, 1)))
    assert np.all(found.moments.theta == 0)
    exact, cov = an.finite_width(which).variance, found.moments.cov
    assert abs(cov.mean() - exact) < 6 * cov.std() / 8**0.5 + 1e-4 * exact
    assert cov.std() < 0.02 * exact


def test_ends_and_symmetries() -> None:
    """The correction is 0 at t = 0 and, on the training set, at t = inf.

    The correction is odd in y, and is a sum of terms proportional to the inverse widths of the layers.
    """
    found = theory(spec(2))
    start, end = found.predict(0.0), found.predict(np.inf)
    assert np.all(start.correction == 0)
    assert np.all(start.limit == 0)
    train = an.width_correction(spec(2), X[:3], Y, samples=128).predict([1.0, np.inf])
    np.testing.assert_allclose(train.limit[1], Y, rtol=1e-9)
    assert np.abs(train.correction[1]).max() < 1e-6 < 1e-2 < np.abs(train.correction[0]).max()
    flow = an.gradient_flow(an.kernel(spec(2)).ntk(X[:3]), Y)
    k = an.kernel(spec(2)).ntk(X[3:], X[:3])
    np.testing.assert_allclose(end.limit, flow.predict(np.inf, k), rtol=1e-9)
    np.testing.assert_allclose(found.predict(2.0).limit, flow.predict(2.0, k), rtol=1e-9)
    np.testing.assert_allclose(theory(spec(2), -Y).predict(2.0).correction, -found.predict(2.0).correction, rtol=1e-4)
    one, other, both = (
        theory(mn.Sequential(mn.Dense(n), mn.Erf(), mn.Dense(m), mn.Erf(), mn.Dense(1))).predict(2.0).correction
        for n, m in ((10, 10**9), (10**9, 20), (10, 20))
    )
    np.testing.assert_allclose(both, one + other, rtol=1e-4)


def test_training_and_test_points_have_one_theory() -> None:
    """If test points are training points, predictions and kernel rows are equal up to the sampling error."""
    train, test = (an.width_correction(spec(2), X[:3], Y, x_test, samples=1024) for x_test in (None, X[:3]))
    for found, same in ((train.predict(3.0), test.predict(3.0)), (train.kernel(3.0), test.kernel(3.0))):
        np.testing.assert_allclose(found.limit, same.limit, rtol=1e-9)
        assert np.all(np.abs(found.correction - same.correction) < 8 * np.hypot(found.error, same.error))
        assert found.error.max() < 0.05 * np.abs(found.correction).max()


def test_the_error_is_the_scatter_and_falls_with_samples() -> None:
    """Estimates from different samples agree within their errors.

    With 16 times as many samples, the error falls to less than a third; the law 1/sqrt(samples) predicts a quarter.
    """
    coarse, fine = (theory(spec(2), samples=S, rng=np.random.default_rng(3)).predict([1.0, 9.0]) for S in (128, 2048))
    assert np.all(np.abs(coarse.correction - fine.correction) < 8 * np.hypot(coarse.error, fine.error))
    assert np.all(fine.error < coarse.error / 3)


# ------------------------------------------------------------------------------- one hidden layer, by quadrature


NEURON = np.array([[0.7], [-1.0], [0.3]])


def neuron(phi: mn.spec.Activation) -> mn.Sequential:
    """Return a network with a hidden layer of width 1."""
    return mn.Sequential(mn.Dense(1, w_std=0.9, b_std=0.5), phi, mn.Dense(1, w_std=1.1))


@cache
def one_neuron(phi: mn.spec.Activation) -> dict[str, Array]:
    """Return the moments at width 1, by quadrature over the neuron's two weights and bias.

    With one hidden layer, O3 and O4 are sums over independent neurons, so n times each moment is the same at every
    width. O3 and O4 are computed by finite differences along J', with errors of 1e-5.
    """
    which, x, h = neuron(phi), NEURON, 1e-3
    grids = [np.polynomial.hermite_e.hermegauss(order) for order in (28, 28, 3)]  # degree 4 in the output weight
    w, b, a = (g.ravel() for g in np.meshgrid(*(nodes for nodes, _ in grids), indexing="ij"))
    weight = np.multiply.outer(np.outer(grids[0][1], grids[1][1]), grids[2][1]).ravel()
    weight /= weight.sum()
    net = mn.Network(which, (1,))
    theta = np.empty((len(weight), net.size))
    for name, values in (("0.W", w), ("0.b", b), ("2.W", a)):
        tensor = net.layout.unpack(theta)[name]
        tensor[...] = values.reshape(-1, *(1 for _ in tensor.shape[1:]))

    def along(at: Array, c: int) -> Array:
        """Return h grad f_c."""
        _, J = net.linearize(at, x)
        return h * J.vjp(np.broadcast_to(np.eye(3)[c][:, None], (len(at), 3, 1)))

    def O3(at: Array, c: int) -> Array:
        step = along(at, c)
        return (mn.ntk(net, at + step, x) - mn.ntk(net, at - step, x)) / (2 * h)

    Theta, f = mn.ntk(net, theta, x), net(theta, x)[..., 0]
    off = Theta - an.kernel(which).ntk(x)
    o3 = np.stack([O3(theta, c) for c in range(2)], axis=-1)
    steps = [along(theta, d) for d in range(2)]
    o4 = [[(O3(theta + u, c) - O3(theta - u, c)) / (2 * h) for u in steps] for c in range(2)]
    return {
        "theta": np.einsum("e,eab->ab", weight, off)[:, :2],
        "cov": np.einsum("e,eab,ecd->abcd", weight, off, off)[:, :2, :2, :2],
        "o3f": np.einsum("e,eabc,ed->abcd", weight, o3, f)[:, :2, ..., :2],
        "o4": np.einsum("e,cdeab->abcd", weight, np.array(o4))[:, :2],
    }


def neuron_law(phi: mn.spec.Activation) -> None:
    """The theory's moments equal those by quadrature, within six standard errors plus the finite-difference error."""
    found = an.width_correction(neuron(phi), NEURON[:2], np.ones((2, 1)), NEURON[2:])
    Q = found.Q
    for name, right in one_neuron(phi).items():
        claim = getattr(found.moments, name)
        turned = right @ Q if name == "theta" else np.einsum("abcd,bi,cj,dk->aijk", right, Q, Q, Q)
        off, error = np.abs(claim.mean(0) - turned), claim.std(0, ddof=1) / len(claim) ** 0.5
        assert np.all(off < 6 * error + 2e-4 * max(1, np.abs(turned).max())), name


@pytest.mark.parametrize("phi", [mn.Sin(), mn.GELU()], ids=repr)
def test_one_hidden_layer(phi: mn.spec.Activation) -> None:
    neuron_law(phi)


@pytest.mark.parametrize(("order", "name"), [(2, "o3f"), (3, "o4")])
def test_a_neuron_without_curvature_is_refused(order: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative controls: the law fails if the second or the third derivative of phi is set to 0."""
    derivatives = one_finite_layer.derivatives

    def flat(*arguments: Any) -> list[Array]:
        return [a * (i != order) for i, a in enumerate(derivatives(*arguments))]

    monkeypatch.setattr(width_correction, "derivatives", flat)
    with pytest.raises(AssertionError, match=name):
        neuron_law(mn.GELU())


# ----------------------------------------------------------------------- the layers above, by the kernels themselves


def difference(f: Any, u: int, h: float = 4e-3) -> Any:
    """Return the function df/dx_u, computed by central differences."""
    step = h * np.eye(3)[u]
    return lambda x: (f(x + step) - f(x - step)) / (2 * h)


def above_law(hidden: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the first layer's derivatives of K and T equal those of the kernel of the layers above.

    Two inputs with the Gram matrix [[p, c], [c, q]] represent the means of a layer, and T(c, p, q, rho) = T(c, p, q, 0)
    + rho K_c, with K_c = dK/dc.
    """
    made: list[FiniteLayer] = []

    def kept(*given: Any) -> FiniteLayer:
        made.append(FiniteLayer(*given))
        return made[-1]

    monkeypatch.setattr(width_correction, "FiniteLayer", kept)
    theory(spec(hidden), samples=2**11)
    first = made[hidden - 1 :: hidden]  # the first hidden layer, in each of the eight estimates
    upper, w2, b2 = mn.Sequential(*spec(hidden).layers[2:]), 1.3**2, 0.3**2

    @cache
    def at_means(c: float, p: float, q: float) -> Array:
        kernels = an.kernel(upper).both(np.linalg.cholesky(np.array([[p, c], [c, q]])) * 2**0.5)
        return np.array([k[0, 1] for k in kernels])

    def both(means: Array) -> Array:
        """Return K, and T at rho = 0."""
        return at_means(*means.round(9))

    k = (an.kernel(mn.Sequential(*spec(hidden).layers[:3])).nngp(X[[0, 2]]) - b2) / w2
    means, K_c = np.array([k[0, 1], k[0, 0], k[1, 1]]), difference(both, 0)
    rho = (an.kernel(spec(hidden)).ntk(X[[0, 2]])[0, 1] - both(means)[1]) / K_c(means)[0]
    for u in range(3):
        slope = difference(both, u)
        cases = [((u,), slope, K_c), *(((u, v), difference(slope, v), difference(K_c, v)) for v in range(3))]
        for at, f, bent in cases:
            in_K, in_T = f(means) + np.array([0, rho]) * difference(bent, u)(means)[0]
            for name, value in (("K", in_K), ("T", in_T)):
                jets = [getattr(layer, name) for layer in first]
                claims = np.array([(jet.first if len(at) == 1 else jet.second)[(*at, 0, 2)] for jet in jets])
                error = claims.std(ddof=1) / len(claims) ** 0.5
                assert abs(claims.mean() - value) < 6 * error + 1e-3, (name, at, claims.mean(), value)
                assert error < 0.02


@pytest.mark.parametrize("hidden", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_layers_above(hidden: int, monkeypatch: pytest.MonkeyPatch) -> None:
    above_law(hidden, monkeypatch)


def test_a_forgotten_half_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the law fails if Price's theorem has 1 in place of 1/2 for the variances."""
    monkeypatch.setattr(one_finite_layer, "PRICE", tuple((i, j, 1.0) for i, j, _ in one_finite_layer.PRICE))
    with pytest.raises(AssertionError, match="K"):
        above_law(2, monkeypatch)


# ------------------------------------------------------------------------------------ three layers, by their weights

ONE = mn.Sequential(*(mn.Dense(1, w_std=1.5), mn.Erf()) * 3, mn.Dense(1))


@cache
def kernels_at_start(n: int, members: int = 500_000) -> Array:
    """Return n (Theta - T) and n (Theta - T)^2, (members, 2), for `ONE` at width n and a single input.

    The networks are drawn layer by layer.
    """
    T, rng, found = float(an.kernel(ONE).ntk(np.ones((1, 1)))[0, 0]), np.random.default_rng(n), []
    for _ in range(0, members, 5000):
        W = [1.5 / n**0.5 * rng.standard_normal((5000, n, n), dtype=np.float32) for _ in range(2)]
        z = [1.5 * rng.standard_normal((5000, n), dtype=np.float32)]
        for w in W:
            z.append((w @ erf(z[-1])[..., None])[..., 0])
        slopes = [2 / pi**0.5 * np.exp(-(u**2)) for u in z]
        g = [rng.standard_normal((5000, n), dtype=np.float32) / n**0.5 * slopes[2]]  # df/dz, from the output down
        for w, slope in zip(W[::-1], slopes[1::-1], strict=True):
            g.append((g[-1][:, None] @ w)[:, 0] * slope)
        size = [1.5**2, *(1.5**2 * np.mean(erf(u) ** 2, axis=1) for u in z[:2])]
        Theta = np.mean(erf(z[2]) ** 2, axis=1) + sum(
            a * np.sum(u**2, axis=1) for a, u in zip(size, g[::-1], strict=True)
        )
        found.append(n * np.stack([Theta - T, (Theta - T) ** 2], axis=1))
    return np.concatenate(found).astype(np.float64)


def start_law() -> None:
    """E Theta and Var Theta equal means over networks, m(n), at widths n = 16, 32, extrapolated by 2 m(32) - m(16)."""
    found = an.width_correction(ONE, np.ones((1, 1)), np.ones((1, 1))).moments
    claims = np.stack([found.theta.ravel(), found.cov.ravel()], axis=1)
    narrow, wide = kernels_at_start(16), kernels_at_start(32)
    off = 2 * wide.mean(0) - narrow.mean(0) - claims.mean(0)
    error = np.sqrt((4 * wide.var(0) + narrow.var(0)) / len(wide) + claims.var(0) / len(claims))
    for name, z in zip(("E Theta", "Var Theta"), np.abs(off / error), strict=True):
        assert z < limit(2), f"{name}: z = {z:.1f}"


@pytest.mark.slow
@pytest.mark.parametrize("plant", ["", "K is straight", "T is straight", "one layer forgotten"])
def test_kernels_of_three_layers_at_the_start(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels at initialisation agree with the theory.

    The check fails on a theory without the second derivatives of K or of T, or without one of the layers.
    """

    def planted(phi: list[Array], kappa: Array, K: Jet, T: Jet, N: int) -> FiniteLayer:
        K = Jet(K.first, 0 * K.second) if plant == "K is straight" else K
        T = Jet(T.first, 0 * T.second) if plant == "T is straight" else T
        forgotten = plant == "one layer forgotten" and not K.second.any()
        return FiniteLayer([0 * a for a in phi] if forgotten else phi, kappa, K, T, N)

    monkeypatch.setattr(width_correction, "FiniteLayer", planted)
    if plant:
        with pytest.raises(AssertionError, match="z ="):
            start_law()
    else:
        start_law()


# ------------------------------------------------------------------------------------------- trained networks


@pytest.mark.slow
def test_trained_networks() -> None:
    """Compare the theory with 16,000 networks of each width, 32 and 64, from examples/mean_of_networks.py.

    The check fails on a theory that lacks one of the moments cov, o3f and o4.
    """
    case, pairs = "1 hidden, tanh", 8000
    path = Path(__file__).resolve().parents[3] / "examples" / "mean_of_networks.py"
    loading = importlib.util.spec_from_file_location("mean_of_networks", path)
    assert loading
    assert loading.loader
    loading.loader.exec_module(example := importlib.util.module_from_spec(loading))
    x, y = mn.datasets.digits().pca(5).on_sphere().subset(6, np.random.default_rng(0)).parity()
    (narrow, own), (wide, other) = (example.mean_of_networks(case, n, x, y, pairs) for n in (32, 64))
    found = an.width_correction(example.spec(case, 1), x[1:], y[1:], x[:1])

    def law(claim: WidthCorrection) -> None:
        start, c, unsure = (a[:, 0, 0] for a in claim.predict(example.TIMES))
        off = 2 * 64 * (wide - start) - 32 * (narrow - start) - c
        z = np.abs(off / np.sqrt((2 * 64 * other) ** 2 + (32 * own) ** 2 + unsure**2)).max()
        assert z < limit(len(c)), f"z = {z:.1f}"

    law(found)
    for name in ("cov", "o3f", "o4"):
        with pytest.raises(AssertionError, match="z ="):
            law(replace(found, moments=found.moments._replace(**{name: 0 * getattr(found.moments, name)})))


# ---------------------------------------------------------------------------------------------------- bad input


REFUSED: dict[str, tuple[mn.Sequential, Array, Array, Array | None]] = {
    "activations without kinks": (spec(1, phi=mn.ReLU()), X, np.ones((4, 1)), None),
    "expects one output": (mn.Sequential(mn.Dense(3), mn.Tanh(), mn.Dense(2)), X, np.ones((4, 2)), None),
    "expected Dense layers": (mn.Sequential(mn.Conv2d(3), mn.Tanh(), mn.Dense(1)), X, np.ones((4, 1)), None),
    "y expects shape": (spec(1), X, np.ones((4, 2)), None),
    "x_test expects": (spec(1), X, np.ones((4, 1)), X[:, :2]),
    "x_test expects at least one": (spec(1), X, np.ones((4, 1)), X[:0]),
    "singular, its smallest eigenvalue": (spec(1), X[[0, 0]], np.ones((2, 1)), None),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_it_refuses(says: str) -> None:
    with pytest.raises((ValueError, UnsupportedLayer), match=says):
        an.width_correction(*REFUSED[says])


def test_times_and_samples_are_checked() -> None:
    found = an.width_correction(spec(1), X[:1], Y[:1], samples=2)
    for t in (-1.0, np.nan, "soon", [[1.0]]):
        with pytest.raises(ValueError, match="t expects numbers >= 0"):
            found.predict(t)
    with pytest.raises(ValueError, match="t expects one time"):
        found.kernel([1.0, 2.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="samples expects a whole number >= 2"):
        an.width_correction(spec(1), X[:1], Y[:1], samples=1)
    with pytest.raises(MemoryError, match="the moments needs about"):
        an.width_correction(spec(1), X, np.ones((4, 1)), samples=2**40)


def test_huge_targets_have_the_correction_that_is_cubic_in_y() -> None:
    """Above 1e8, y is negligible beside y^3. With tolerances in units of y, the solver would not terminate."""
    one, huge = (an.width_correction(spec(1), X, np.full((4, 1), y), samples=64).predict(2.0) for y in (1e8, 1e80))
    np.testing.assert_allclose(huge.correction / 1e240, one.correction / 1e24, rtol=1e-5)
    with pytest.raises(ValueError, match="y expects targets below 1e90"):
        an.width_correction(spec(1), X, np.full((4, 1), 1e100), samples=64)


def test_tiny_targets_have_the_correction_that_is_linear_in_y() -> None:
    """Below 1e-8, y^3 is negligible, so the correction is linear in y, here from 1e-9 down to 1e-200."""
    found = [an.width_correction(spec(1), X, y * np.arange(1.0, 5.0)[:, None], samples=64) for y in (1e-9, 1e-200)]
    (_, first, error), (_, tiny, small) = (one.predict(2.0) for one in found)
    np.testing.assert_allclose(tiny / 1e-200, first / 1e-9, rtol=1e-6)
    np.testing.assert_allclose(small / 1e-200, error / 1e-9, rtol=1e-4)
