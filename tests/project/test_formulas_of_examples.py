"""Compare formulas in the scripts of papers with independent formulas at small sizes, without running the scripts."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

import minintk as mn
from tests.project.reruns import importable


@pytest.fixture(autouse=True)
def _scripts_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    importable(monkeypatch, "common", "geiger", "interpolation_threshold", "spectral_norms")


def script(name: str) -> Any:
    return importlib.import_module(name)


def dense(net: mn.Network, theta: Any, x: Any) -> Any:
    """Return the Jacobian J of the outputs with respect to theta, as a matrix (N C, P)."""
    return net.linearize(theta, x)[1].dense().reshape(len(x) * net.outputs, -1)


def share_right(f: Any, y: Any) -> float:
    return float(np.mean(f * y > 0))


def test_exact_solution_ridge_and_stopped_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare accuracies with those of f_0 + J w: w = pinv(J) b, (J'J + ridge I)^-1 J' b, or by matrix exponential."""
    threshold, module, time = script("interpolation_threshold"), script("exact_linearised_lenet"), 2000.0
    net, theta0, (x, y, x_test, y_test) = threshold.problem("digits", 60, 0, 1, 3)
    found = module.solved("digits", 60, 0, 1, 3, time)
    J, across = dense(net, theta0, x), dense(net, theta0, x_test)
    b, f0 = (y - net(theta0, x))[:, 0], net(theta0, x_test)[:, 0]
    assert found["P / N"] == J.shape[1] / 60
    assert found["test"] == pytest.approx(share_right(f0 + across @ np.linalg.pinv(J) @ b, y_test[:, 0]), abs=1e-9)
    assert found["train"] == 1
    gram = J.T @ J
    ridges = [
        share_right(f0 + across @ np.linalg.solve(gram + ridge * np.eye(len(gram)), J.T @ b), y_test[:, 0])
        for ridge in module.RIDGES[3:]  # smaller ridges give equal outputs here
    ]
    assert found["ridge"][3:] == pytest.approx(ridges, abs=1e-9)
    assert len(set(ridges)) > 2
    a = np.linalg.solve(J @ J.T, b - expm(-time / 60 * J @ J.T) @ b)  # of f' = -J J' (f - b) / 60
    stopped = share_right(f0 + across @ J.T @ a, y_test[:, 0])
    assert found["stopped"] == pytest.approx(stopped, abs=1e-9) != found["test"]
    monkeypatch.setattr(module, "AT_ONCE", 59)  # as for data beyond memory: panels of 25 rows, no eigenvectors
    monkeypatch.setattr("analytic.large.gram.BLOCK", 25)
    panels = module.solved("digits", 60, 0, 1, 3, time)
    assert np.isnan(panels.pop("stopped"))
    assert panels == {name: found[name] for name in panels}


def test_least_squares_of_more_examples_than_weights() -> None:
    module = script("interpolation_threshold")
    rng = np.random.default_rng(0)
    net = mn.Network(mn.Sequential(mn.Dense(2, b_std=1.0), mn.ReLU(), mn.Dense(1)), (3,))
    theta0, x, y = net.init(rng), rng.standard_normal((30, 3)), rng.standard_normal((30, 1))
    w, J = module.exact(net, theta0, x, y) - theta0, dense(net, theta0, x)
    b = (y - net(theta0, x))[:, 0]
    assert w == pytest.approx(np.linalg.pinv(J) @ b, abs=1e-9)
    assert np.allclose(module.rows(net, theta0, x), J)


@pytest.mark.parametrize(("side", "width", "weights"), [(8, 1, 881), (8, 2, 3361), (28, 1, 1991)])
def test_the_reduced_lenet_has_the_papers_share_of_weights(side: int, width: int, weights: int) -> None:
    """At side 8, P = 50 k^2 + 20 k + 1 with k = 4 width. Weights per image: 881/867, near the paper's 60,941/60,000."""
    net = mn.Network(script("interpolation_threshold").reduced((side, side, 1), width), (side, side, 1))
    assert net.size == weights


def test_the_stable_rate() -> None:
    rng = np.random.default_rng(0)
    net = mn.Network(mn.Sequential(mn.Dense(20), mn.Tanh(), mn.Dense(3)), (5,))
    theta0, x = net.init(rng), rng.standard_normal((12, 5))
    J = dense(net, theta0, x)
    want = 2 * (1 + 0.9) / (2 * np.linalg.eigvalsh(J @ J.T)[-1] / 12)
    assert want < script("common").stable_rate(net, theta0, x) < 1.1 * want  # power iteration converges from below


def test_effective_ranks_are_of_singular_values() -> None:
    module = script("spectrum_of_lenet")
    assert module.effective_rank(np.array([2.0] * 7 + [0.0])) == pytest.approx(7)
    assert module.effective_rank(np.array([3.0, 1.0])) == pytest.approx(0.75**-0.75 * 0.25**-0.25)
    found, (train, _) = module.spectrum("digits", 4, 0, 1, 0), script("common").images("digits", 4, 1, 0)
    x = train.standardise().x.astype(float)
    net = mn.Network(script("common").lenet(x.shape[1:], 1), x.shape[1:], mn.PyTorch())
    sigma = np.linalg.svd(dense(net, net.init(np.random.default_rng(0)), x), compute_uv=False)
    assert found["sigma"][[0, -1]] == pytest.approx([sigma[0], sigma[-1]], rel=1e-6)
    for name, s in (("rank of J", sigma), ("rank of kernel", sigma**2)):
        p = s / s.sum()
        assert found[name] == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-6)


def test_the_frozen_kernel_learns_by_its_own_flow() -> None:
    """Outputs agree with small Euler steps of f' = -K dL/df from f = 0. L is the mean hinge loss divided by alpha^2."""
    geiger = script("geiger")
    (x, y), (x_test, _) = geiger.task("sparse", 12, 5, "float64")
    net = geiger.network(10, 2)
    theta0, alpha = geiger.start(net, (0,), np.float64), 2.0
    found = geiger.frozen(mn.Centred(net, theta0, alpha), theta0, x, y, x_test)[0, :, 0]
    K, f = alpha**2 * mn.ntk(net, theta0[0], np.concatenate([x, x_test]), x), np.zeros(17)
    step = 0.01 * 12 / np.linalg.norm(K[:12], 2) * alpha**2
    while (open_ := (1 - y[:, 0] * f[:12] > 0)).any():
        f = f + step / alpha**2 * K @ (y[:, 0] * open_) / 12
    assert found == pytest.approx(f[12:], abs=0.03 * np.abs(f[12:]).max())


def test_speeds_of_layers_are_products_with_their_jacobians() -> None:
    """Check dz/dt = -J_l J' dL/df at t = 0, where J_l is the Jacobian of layer l's z.  An error of 1 % is detected."""
    module, geiger, depth = script("linear_until_t1"), script("geiger"), 3
    (x, y), net = geiger.task("digits", 12, 5, "float64")[0], geiger.network(10, depth)
    found = module.speed("digits", 12, depth, 10, (0, 1))
    for seed, speeds in enumerate(found):
        theta = net.init(np.random.default_rng(seed))
        f, J = net.linearize(theta, x)
        v = J.vjp(mn.Hinge().cotangent(0 * f, y))
        parts = [mn.Sequential(*net.spec.layers[: 2 * i + 1]) for i in range(depth)]
        trunks = [mn.Network(part, x.shape[1:], net.parametrization) for part in parts]
        exact = [trunk.linearize(theta[: trunk.size], x)[1].jvp(v[: trunk.size]) for trunk in trunks]
        right = [float(np.sqrt((dz**2).mean())) for dz in exact]
        assert speeds["speed"] == pytest.approx(right, rel=1e-3)
        assert speeds["speed"] != pytest.approx(1.01 * np.array(right), rel=1e-3)


def test_where_the_error_is_half_way() -> None:
    scales, error = (0.1, 1.0, 10.0, 100.0), np.array([0.1, 0.15, 0.25, 0.28, 0.3])
    assert script("lazy_and_feature_phase").crossing(scales, error) == pytest.approx(10**0.5)
    dip = np.array([0.1, 0.15, 0.25, 0.12, 0.3])  # the first of three crossings
    assert script("lazy_and_feature_phase").crossing(scales, dip) == pytest.approx(10**0.5)


def test_powers_are_fitted_seed_by_seed() -> None:
    rng = np.random.default_rng(0)
    b, c = rng.normal(-0.5, 0.1, 6), rng.normal(0, 2, 6)
    values = np.exp(c) * np.array([10.0, 30.0, 200.0])[:, None] ** b
    for name, fit in (("mup_lecture", "exponents"), ("geiger", "exponent")):
        got = getattr(script(name), fit)((10, 30, 200), values)
        assert got.mean == pytest.approx(b.mean())
        assert got.half == pytest.approx(2.5706 * b.std(ddof=1) / 6**0.5, rel=1e-4)


def test_statistics_of_trajectories_forget_which_image_it_was() -> None:
    apart, rng = script("trajectories_of_lenet").apart, np.random.default_rng(0)
    f = rng.standard_normal((3, 20_000))
    equal = apart(f, 2 * f + 1)
    assert (equal["statistics"], equal["paths"]) == pytest.approx((2**0.5, 0.0), abs=0.02)
    other = apart(f, f[:, rng.permutation(20_000)])
    assert (other["statistics"], other["paths"]) == pytest.approx((0.0, 2**0.5), abs=0.02)


@pytest.mark.parametrize(
    "name", ["lenet_and_its_linearisation", pytest.param("reduced_alexnet", marks=pytest.mark.slow)]
)
def test_a_linearisation_decays_towards_its_start_at_ten_times_the_rate(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models share initial weights and batches, and have rates 1 : 1 : 10. Linearisations decay towards theta_0."""
    module, seen = script(name), []

    def kept(model: Any, theta0: Any, x: Any, y: Any, **how: Any) -> Any:
        seen.append((model, theta0, how["optimizer"], how["rng"].random()))
        raise FloatingPointError

    monkeypatch.setattr(mn, "fit", kept)
    size = {"data": "digits", "n_train": 40, "n_test": 10, "epochs": 1, "width": 1, "seed": (0, 1)}
    for kind in module.KINDS:
        with pytest.raises(FloatingPointError):
            module.train(kind=kind, **size, **({"shift": 0} if "lenet" in name else {}))
    rates = [getattr(sgd.lr, "lr", sgd.lr) for _, _, sgd, _ in seen]
    assert np.array(rates) / rates[0] == pytest.approx([1, 1, 10], rel=1e-5)
    assert all(np.array_equal(theta0, seen[0][1]) and drawn == seen[0][3] for _, theta0, _, drawn in seen)
    assert [isinstance(model, mn.Linearized) for model, *_ in seen] == [False, True, True]
    assert seen[0][2].towards is None
    assert all(np.array_equal(sgd.towards, theta0) for _, theta0, sgd, _ in seen[1:])
