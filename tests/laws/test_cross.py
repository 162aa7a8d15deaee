"""Compare mean kernels of finite networks with infinite-width kernels, and training with its closed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import analytic as an
import minintk as mn
from minintk.spec.parametrization import Parametrization
from minintk.testing import assert_close, roundings
from tests.kit.montecarlo import assert_mean, inputs, kernels, limit, z_scores
from tests.kit.strategies import ACTIVATIONS, MORE, SMOOTH, Case, cases, networks

Array = np.ndarray[Any, Any]
X = inputs()
UPPER = np.triu_indices(len(X))


def truth(spec: mn.spec.Layer, x: Array = X, parametrization: Parametrization | None = None) -> tuple[Array, Array]:
    """Return the upper triangles of the infinite-width NNGP and NTK."""
    nngp, ntk = an.kernel(spec, parametrization or mn.NTK()).both(x)
    upper = np.triu_indices(len(x))
    return nngp[upper], ntk[upper]


def one_hidden(activation: mn.spec.Activation, width: int, w_std: float = 1.3, **bias: Any) -> mn.Sequential:
    return mn.Sequential(mn.Dense(width, w_std=w_std, **bias), activation, mn.Dense(8, w_std=w_std, **bias))


# -------------------------------------------- one hidden layer: equality at every width, in expectation


@pytest.mark.parametrize(
    "activation", [*ACTIVATIONS, *(pytest.param(a, marks=pytest.mark.slow) for a in MORE)], ids=repr
)
@pytest.mark.parametrize("width", [1, 20])
def test_one_hidden_layer_has_the_infinite_kernels_on_average(activation: mn.spec.Activation, width: int) -> None:
    """At any width, E hatK = K and E hatTh = Th, because hidden pre-activations are Gaussian and the rest is linear."""
    spec = one_hidden(activation, width, b_std=0.4)
    for name, samples, expected in zip(("NNGP", "NTK"), kernels(spec, X, 4000), truth(spec), strict=True):
        assert_mean(f"{name} of {activation}", samples, expected)


@pytest.mark.parametrize(
    "spec",
    [
        one_hidden(mn.Erf(), 6, b_std=0.5, b_init="zeros"),
        mn.Sequential(
            mn.Dense(6, b_std=0.3),
            mn.Residual(mn.Sequential(mn.ReLU(), mn.Dense(6, w_std=1.4, b_std=0.2))),
            mn.Dense(8),
        ),
        mn.Sequential(
            mn.Dense(6, b_std=0.3),
            mn.Residual(mn.Sequential(mn.Tanh(), mn.Dense(5, w_std=1.4)), shortcut=mn.Dense(5, b_std=0.2)),
            mn.Dense(8),
        ),
        mn.Sequential(mn.Dense(5), mn.Dense(4, b_std=0.5), mn.Dense(8)),
        mn.Sequential(mn.Dense(5), mn.Sequential(mn.Identity(), mn.GELU()), mn.Sequential(mn.Dense(4), mn.Dense(8))),
    ],
    ids=["zero-initialised bias", "residual", "residual, projected", "linear", "nested"],
)
@pytest.mark.parametrize("parametrization", [mn.NTK(), mn.Standard()], ids=repr)
def test_one_nonlinearity_on_every_path_is_enough(spec: mn.Sequential, parametrization: Parametrization) -> None:
    """Mean kernels of finite networks equal the infinite-width kernels if every activation acts on Gaussian inputs.

    Linear layers after the activations, and shortcuts, are allowed.
    """
    samples = kernels(spec, X, 4000, parametrization=parametrization)
    for name, mine, expected in zip(("NNGP", "NTK"), samples, truth(spec, X, parametrization), strict=True):
        assert_mean(f"{name} of {spec}", mine, expected)


def test_relu_without_bias_has_the_infinite_diagonal_on_average_at_any_depth() -> None:
    """E |relu(W h)|^2 = E |W h|^2 / 2, so the mean squared norms are exact and E hatTh(x, x) = Th(x, x)."""
    layers = [layer for _ in range(4) for layer in (mn.Dense(10, w_std=2**0.5), mn.ReLU())]
    spec = mn.Sequential(*layers, mn.Dense(1))
    diagonal = UPPER[0] == UPPER[1]
    for name, samples, expected in zip(("NNGP", "NTK"), kernels(spec, X, 6000), truth(spec), strict=True):
        assert_mean(f"diagonal of {name}", samples[:, diagonal], expected[diagonal])


def test_the_variance_of_one_hidden_relu_layer_is_three_over_n() -> None:
    """n Var hatTh(x, x) / Th(x, x)^2 is exactly 3. The fourth moment gives the standard error of the estimate."""
    n, E = 20, 20_000
    spec = mn.Sequential(mn.Dense(n, w_std=2**0.5), mn.ReLU(), mn.Dense(1, w_std=2**0.5))
    _, ntk = kernels(spec, X[:1], E)
    _, expected = truth(spec, X[:1])
    relative = ntk / expected - 1
    assert_mean("n Var / Th^2 = 3", n * relative**2, np.array([3.0]))


@pytest.mark.parametrize("activation", [mn.ReLU(), mn.Erf(), mn.Tanh()], ids=repr)
def test_deep_networks_approach_the_infinite_kernels_as_one_over_width(activation: mn.spec.Activation) -> None:
    """E hatTh_n = Th + c/n + O(1/n^2), so 2 E hatTh_2n - E hatTh_n is Th up to O(1/n^2). The test allows 0.5 %."""

    def spec(n: int) -> mn.Sequential:
        return mn.Sequential(
            mn.Dense(n, w_std=1.4, b_std=0.3), activation, mn.Dense(n, w_std=1.4, b_std=0.3), activation, mn.Dense(1)
        )

    few = X[:2]
    for narrow, wide, expected in zip(
        kernels(spec(48), few, 2000), kernels(spec(96), few, 2000, seed=1), truth(spec(1), few), strict=True
    ):
        samples = 2 * wide - narrow
        z = z_scores(samples, expected)
        allowed = limit(z.size) + 0.005 * np.abs(expected) / (samples.std(axis=0) / len(samples) ** 0.5)
        assert np.all(np.abs(z) <= allowed), z


# ------------------------------------------------------ the same test fails for kernels that are wrong

SPEC = one_hidden(mn.ReLU(), 12, b_std=0.4)
WRONG: dict[str, Callable[[], tuple[Array, Array]]] = {
    "sigma_w off by 5 per cent": lambda: truth(one_hidden(mn.ReLU(), 12, w_std=1.3 * 1.05, b_std=0.4)),
    "a factor 2 missing": lambda: (truth(SPEC)[0] / 2, truth(SPEC)[1] / 2),
    "sigma_b dropped": lambda: truth(one_hidden(mn.ReLU(), 12)),
    "another activation": lambda: truth(one_hidden(mn.GELU(), 12, b_std=0.4)),
    "NTK and NNGP exchanged": lambda: (truth(SPEC)[1], truth(SPEC)[0]),
    "zero-initialised bias": lambda: truth(one_hidden(mn.ReLU(), 12, b_std=0.4, b_init="zeros")),
    "inputs not divided by d": lambda: truth(SPEC, X * 3**0.5),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_the_z_test_refuses_wrong_kernels(wrong: Callable[[], tuple[Array, Array]]) -> None:
    """With the same samples, the z-test passes for the correct kernels and fails for wrong kernels."""
    nngp, ntk = kernels(SPEC, X, 4000)
    right = truth(SPEC)
    assert max(np.abs(z_scores(nngp, right[0])).max(), np.abs(z_scores(ntk, right[1])).max()) < limit(20)
    k, theta = wrong()
    assert max(np.abs(z_scores(nngp, k)).max(), np.abs(z_scores(ntk, theta)).max()) > 2 * limit(20)


# -------------------------------------------------------------------- training against its closed form


@given(cases(networks(SMOOTH, parametrizations=(mn.NTK(), mn.Standard())), ensembles=(None,)))
def test_training_the_linearised_network_is_the_closed_form(case: Case) -> None:
    """For squared loss, `train` on Linearized and `gradient_descent` on its kernel agree in f and theta to 1e-10.

    The tolerance is relative to the size of f, y and theta. `gradient_descent` omits eigenvalues of k below its
    rounding error tau = eps (N C + 100) |k|. In s steps, they add at most sqrt(tau) |y - f_0| lr s / N to theta.
    """
    net, x, y, theta0 = case.net, case.x, case.y, case.theta
    x_test = case.rng.standard_normal((3, *net.input_shape))
    (f0, J), (f0_test, J_test) = net.linearize(theta0, x), net.linearize(theta0, x_test)
    k, k_test = J.gram(), J_test.gram(J)
    largest = float(np.linalg.eigvalsh(k.reshape(y.size, y.size))[-1])
    if largest < 1e-6:
        return  # a dead network does not learn
    lr, steps = len(x) / largest, 50  # half the bound
    descent = an.gradient_descent(k, y, lr=lr)
    lin = mn.Linearized(net, theta0)
    size = 1 + np.abs(y).max() + np.abs(f0).max() + np.abs(f0_test).max() + np.abs(theta0).max() * largest**0.5
    test_size = size * (1 + np.abs(k_test).max() / largest)
    lost = (np.finfo(float).eps * (y.size + 100) * np.abs(k).max()) ** 0.5 * np.linalg.norm(y - f0)
    for snap in mn.train(lin, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(lr=lr), steps=steps):
        if snap.step in (0, 1, 2, 7, steps):
            f = descent.predict(snap.step, f0=f0)
            assert_close("f of the training set", snap.f, f, 1e-10 * size)
            f = descent.predict(snap.step, k_test, f0=f0, f0_test=f0_test)
            assert_close("f of a test set", lin(snap.theta, x_test), f, 1e-10 * test_size)
            theta = theta0 + J.vjp(np.ascontiguousarray(descent.coefficients(snap.step, f0=f0)))
            allowed = 1e-10 * size * (1 + largest**-0.5) + lost * lr * snap.step / len(x)
            assert_close("theta", snap.theta, theta, allowed)


def test_a_kernel_averaged_over_outputs_serves_one_output() -> None:
    """For one output, the kernel (N, N) gives the same predictions as the full kernel (N, 1, N, 1)."""
    rng = np.random.default_rng(0)
    net = mn.Network(mn.Sequential(mn.Dense(30, b_std=0.1), mn.Erf(), mn.Dense(1)), (3,))
    theta, x, y = net.init(rng), rng.standard_normal((6, 3)), rng.standard_normal((6, 1))
    f0 = net(theta, x)
    one = an.gradient_descent(mn.ntk(net, theta, x), y, lr=0.5).predict(40, f0=f0)
    full = an.gradient_descent(mn.ntk_full(net, theta, x), y, lr=0.5).predict(40, f0=f0)
    *_, last = mn.train(mn.Linearized(net, theta), theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=0.5), steps=40)
    np.testing.assert_allclose(one, full, rtol=0, atol=1e-12)
    np.testing.assert_allclose(last.f, one, rtol=0, atol=1e-11)


def test_the_stability_bounds_agree() -> None:
    """`train` warns about learning rates above the bound that `max_learning_rate` returns."""
    rng = np.random.default_rng(0)
    net = mn.Network(mn.Sequential(mn.Dense(20), mn.Erf(), mn.Dense(2)), (3,))
    theta, x, y = net.init(rng), rng.standard_normal((6, 3)), rng.standard_normal((6, 2))
    for momentum in (0.0, 0.9):
        bound = an.max_learning_rate(mn.ntk_full(net, theta, x), momentum=momentum)
        below, above = (mn.SGD(lr=factor * bound, momentum=momentum) for factor in (0.99, 1.02))
        next(mn.train(net, theta, x, y, loss=mn.mse, optimizer=below, steps=1))
        with pytest.warns(RuntimeWarning, match=f"stability bound {bound:.3g}"[:-1]):
            next(mn.train(net, theta, x, y, loss=mn.mse, optimizer=above, steps=1))


@given(cases(networks(SMOOTH, parametrizations=(mn.NTK(),)), ensembles=(None,)))
def test_roundings_are_small_beside_the_tolerance_of_the_closed_form(case: Case) -> None:
    """The rounding error estimated by `roundings` is far below 1e-10, the tolerance of the closed-form test above."""
    assert roundings(case.net, case.theta, case.x) < 1e-12


# ------------------------------------------------------------------------------- the trained ensemble


def test_mean_and_covariance_of_the_ensemble_are_those_of_its_members() -> None:
    """Compare eqs. (14), (15) of Lee et al. (2019) with (9) to (11), in which members are affine functions of f_0.

    Differences of `gradient_flow(...).predict` at unit vectors f_0 give the matrix B. The covariance is B cov(f_0) B'.
    """
    spec, rng = one_hidden(mn.Erf(), 50, b_std=0.2), np.random.default_rng(0)
    x, x_test, y = inputs(5), inputs(3, seed=1), rng.standard_normal((5, 1))
    kernel, t = an.kernel(spec), 7.0
    K = kernel.nngp(np.concatenate([x, x_test]))
    flow = an.gradient_flow(kernel.ntk(x), y)
    k_test = kernel.ntk(x_test, x)
    start = flow.predict(t, k_test, f0=np.zeros((5, 1)), f0_test=np.zeros((3, 1)))
    columns = [flow.predict(t, k_test, f0=e[:5], f0_test=e[5:]) - start for e in np.eye(8)[:, :, None]]
    B = np.concatenate(columns, axis=1)
    mean, cov = an.ensemble(kernel, x, y).predict(x_test, t=t, cov=True)
    np.testing.assert_allclose(mean, start, rtol=0, atol=1e-12)
    np.testing.assert_allclose(cov, B @ K @ B.T, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ntk", "nngp"])
def test_trained_ensembles_have_the_predicted_mean_and_variance(kind: Any) -> None:
    """Use z-scores to check mean and variance of the outputs of 400 trained one-hidden-layer networks of width 1024.

    The finite width adds a bias of O(1/n), here a few per cent of a standard deviation, far below the z-test's limit.
    kind="nngp" trains only the last layer.
    """
    spec = mn.Sequential(mn.Dense(1024, w_std=1.5, b_std=0.1), mn.Erf(), mn.Dense(1, w_std=1.5))
    x, x_test = inputs(6), inputs(3, seed=1)
    y = np.sin(3 * x[:, :1])
    net = mn.Network(spec, (3,))
    frozen = {"0.W": 0.0, "0.b": 0.0} if kind == "nngp" else {}
    lr, steps, f = 0.5, 60, []
    for seed in range(8):
        theta = net.init(np.random.default_rng(seed), ensemble=50)
        run = mn.train(
            net, theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=lr), steps=steps, every=steps, lr_scales=frozen
        )
        *_, last = run
        f.append(net(last.theta, x_test)[:, :, 0])
    samples = np.concatenate(f)
    kernel = an.kernel(spec)
    K = kernel.nngp(np.concatenate([x, x_test]))

    def predicted(kind: str) -> tuple[Array, Array]:
        """Return mean and variance of f after descent, from A = Theta(x, X) Theta^-1 (I - (I - lr/N Theta)^steps)."""
        theta_xx = kernel.ntk(x) if kind == "ntk" else kernel.nngp(x)
        theta_tx = kernel.ntk(x_test, x) if kind == "ntk" else kernel.nngp(x_test, x)
        lam, Q = np.linalg.eigh(theta_xx)
        A = theta_tx @ (Q * ((1 - (1 - lr / 6 * lam) ** steps) / lam)) @ Q.T
        B = np.concatenate([-A, np.eye(3)], axis=1)
        return (A @ y)[:, 0], np.diag(B @ K @ B.T)

    mean, var = predicted(kind)
    assert_mean("mean of the trained ensemble", samples, mean)
    assert_mean("variance of the trained ensemble", (samples - mean) ** 2, var)
    other, _ = predicted({"ntk": "nngp", "nngp": "ntk"}[kind])
    with pytest.raises(AssertionError, match="mean of the trained ensemble"):
        assert_mean("mean of the trained ensemble", samples, other)
