"""Compare groups of the nonlinear feature-learning limit with finite networks, and the limit with mean-field theory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.limits.nonlinear import DeferredGaussian
from minintk.spec.layers import Activation
from tests.kit.montecarlo import assert_mean
from tests.kit.oracles_features import by_tangents, drawn, exponent, group_and_network, within

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
X, Y, X_TEST = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 2)), RNG.standard_normal((2, 4))


def spec(*activations: Any, n: int = 1, C: int = 1, b_std: float = 0.0) -> mn.Sequential:
    """Return a spec whose scales differ by layer."""
    hidden = [(mn.Dense(n, w_std=1.5 - 0.2 * i, b_std=b_std), phi) for i, phi in enumerate(activations)]
    return mn.Sequential(*[layer for pair in hidden for layer in pair], mn.Dense(C, w_std=0.8, b_std=b_std))


def limit(which: mn.Sequential, **how: Any) -> Any:
    given: dict[str, Any] = {"x": X, "y": Y, "gamma0": 1.5, "lr": 0.1, "steps": 10, "samples": 16_000}
    given["rng"] = np.random.default_rng(1)
    return an.feature_learning_limit(which, **(given | how))


# ------------------------------------------------------------------------------------ the samples are a network


@pytest.mark.parametrize(
    "phi", [mn.Identity(), mn.Erf(), mn.Tanh(), mn.ReLU(), mn.Abs()], ids=lambda a: type(a).__name__
)
@pytest.mark.parametrize("hidden", [1, 2, 3])
def test_a_group_is_the_network_whose_weights_it_reveals(phi: Activation, hidden: int) -> None:
    """The outputs and tangent kernel of a group follow `mn.train` step by step, here at width 24.

    The cases include two outputs, biases, kinks and several depths.
    """
    which = spec(*[phi] * hidden, n=24, C=2, b_std=0.3)
    group, network = group_and_network(which, X, Y, n=24, steps=7, gamma0=1.7, lr=0.15)
    for a, b in zip(group, network, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6 * np.abs(b).max())
    assert np.abs(group[1][-1] - group[1][0]).max() > 0.05 * group[1][0].max()  # features move


def test_many_short_steps_meet_few_directions() -> None:
    """A vector near the span of earlier ones needs no new random numbers, so a flow costs little more than descent."""
    rng = np.random.default_rng(0)
    W = DeferredGaussian(500, lambda *shape: rng.standard_normal(shape))
    a, b = rng.standard_normal((2, 500, 2))
    for t in np.linspace(0, 1, 50):
        np.testing.assert_allclose(W.times(a + t * b), W.times(a) + t * W.times(b), atol=1e-4)
    assert W.Q.shape == (500, 4)
    assert np.all(W.times(0 * a) == 0)
    assert W.Q.shape == (500, 4)


def reveal(seed: int) -> Array:
    """Reveal a 4 x 4 matrix by four products that depend on earlier results, and subtract the updates added to it."""
    rng = np.random.default_rng(seed)
    W, v, moved = DeferredGaussian(4, lambda *shape: rng.standard_normal(shape)), np.ones((4, 1)), np.zeros((4, 4))
    for _ in range(2):
        u = np.tanh(W.times(v))
        back = W.transposed_times(u)
        W.add(u, v)
        v, moved = np.sin(back) + v, moved + u @ v.T
    return drawn(W, rng) - moved


def test_what_is_revealed_is_gaussian() -> None:
    """The entries have mean 0, covariance I and E W^4 = 3, although the vectors depend on earlier products."""
    W = np.array([reveal(seed).ravel() for seed in range(2000)])
    assert_mean("E W", W, np.zeros(16))
    assert_mean("E W W", np.einsum("ei,ej->eij", W, W), np.eye(16))
    assert_mean("E W^4", W**4, np.full(16, 3.0))


# -------------------------------------------------------------------------------------------- the limit


@pytest.mark.parametrize("hidden", [1, 2, 3])
def test_identity_is_the_deep_linear_limit(hidden: int) -> None:
    which = spec(*[mn.Identity()] * hidden, C=2)
    linear = mn.Sequential(*[layer for layer in which.layers if isinstance(layer, mn.Dense)])
    found, truth = limit(which, x_test=X_TEST), an.deep_linear_limit(linear, X, Y, gamma0=1.5, lr=0.1, steps=10)
    f = np.concatenate([truth.predict(), truth.predict(x_test=X_TEST)], axis=1)
    within("f", found.f[1:], found.error.f[1:], f[1:])
    within("ntk", found.ntk[10, :3, :3], found.error.ntk[10, :3, :3], truth.ntk(10))
    for layer in range(hidden):
        ours, error = found.features[10, layer, :3, :3], found.error.features[10, layer, :3, :3]
        within("Phi", ours, error, truth.features(layer + 1, 10))
    assert found.error.f.max() < 0.05


@pytest.mark.parametrize("phi", [mn.ReLU(), mn.Tanh()], ids=lambda a: type(a).__name__)
def test_small_gamma0_is_descent_with_the_analytic_ntk(phi: Activation) -> None:
    which = spec(phi, phi, b_std=0.3)
    k = an.kernel(which)
    closed = an.gradient_descent(k.ntk(X), Y[:, :1], lr=0.1)
    steps = np.arange(11)
    f = np.concatenate([closed.predict(steps), closed.predict(steps, k.ntk(X_TEST, X))], axis=1)
    found = limit(which, y=Y[:, :1], gamma0=1e-4, x_test=X_TEST)
    within("f", found.f[1:], found.error.f[1:], f[1:])
    within("ntk", found.ntk[10], found.error.ntk[10], k.ntk(np.concatenate([X, X_TEST])))
    moved = limit(which, y=Y[:, :1])
    with pytest.raises(AssertionError, match="standard errors"):
        within("f", moved.f[1:, :3], moved.error.f[1:, :3], f[1:, :3])


def test_mean_field_theory_by_tangents_has_the_same_limit() -> None:
    """The mean-field equations, with the responses A and B as mean derivatives, agree with the limit.

    Negative controls: equations without A and B, or without B's term at s = k, do not agree with it.
    """
    which = mn.Sequential(mn.Dense(1), mn.Erf(), mn.Dense(1), mn.Erf(), mn.Dense(1))
    x, y = X[:2], 3 * Y[:2, :1]
    how: dict[str, Any] = {"gamma0": 1.0, "lr": 0.3, "steps": 5}
    found = limit(which, x=x, y=y, samples=80_000, **how)

    def law(**wrong: Any) -> None:
        runs = [by_tangents(x, y, samples=1000, seed=seed, **how, **wrong) for seed in range(16)]
        (f, error), (Phi, error2) = (
            (np.mean(a, axis=0), np.std(a, axis=0, ddof=1) / 4) for a in zip(*runs, strict=True)
        )
        within("f", f[1:], np.hypot(error, found.error.f[..., 0])[1:], found.f[1:, :, 0])
        within("Phi", Phi[5], np.hypot(error2, found.error.features[:, 1])[5], found.features[5, 1])

    law()
    for wrong in ({"boundary": False}, {"echo": 0}):
        with pytest.raises(AssertionError, match="standard errors"):
            law(**wrong)


def width_law(phi: Activation, hidden: int, total: int, widths: tuple[int, ...] = (16, 32, 64)) -> None:
    """The mean over total / n networks of width n differs from the limit by c / n.

    A single network differs from the mean by O(n^(-1/2)). We measure the mean of y f over four digits, one of them odd,
    after twenty steps of feature learning.
    """
    x, y = mn.datasets.digits().pca(5).on_sphere().subset(4, np.random.default_rng(3)).parity()
    lr, steps = 0.1 if isinstance(phi, mn.ReLU) else 0.2, 20
    truth = limit(spec(*[phi] * hidden), x=x, y=y, gamma0=1.0, lr=lr, steps=steps, samples=total)
    means, errors, spread = np.empty((3, len(widths)))
    for at, n in enumerate(widths):
        which, rng, f = spec(*[phi] * hidden, n=n), np.random.default_rng(n), list[Any]()
        net = mn.Network(which, x.shape[1:], mn.MeanField())
        while n * len(f) < total:
            theta0 = net.init(rng, ensemble=10_000 // n)  # fits in cache
            *_, end = mn.train(net, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(lr=lr), steps=steps)
            f.extend((y * np.asarray(net(end.theta, x))).mean(axis=(1, 2)))
        means[at], spread[at] = np.mean(f) - (y * truth.f[-1]).mean(), np.std(f)
        errors[at] = np.hypot(spread[at] / len(f) ** 0.5, truth.error.f[-1].mean())
    b, error = exponent(widths, means, errors)
    one, _ = exponent(widths, spread, spread / np.sqrt(2 * total / np.array(widths)))
    print(f"n bias {means * widths}, +- {errors * widths}: {b:.2f} +- {error:.2f}, one network {one:.2f}")
    if not (abs(b + 1) < 3 * error < 0.5 and abs(one + 0.5) < 0.15):
        raise AssertionError(f"means approach the limit as n^({b:.2f} +- {error:.2f}), networks as n^{one:.2f}")


def test_means_of_networks_are_c_over_n_from_the_limit() -> None:
    width_law(mn.ReLU(), 2, 40_000)


@pytest.mark.slow
@pytest.mark.parametrize("phi", [mn.Erf(), mn.Tanh(), mn.ReLU()], ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("hidden", [1, 2, 3])
def test_means_are_c_over_n_from_the_limit_for_each_activation_and_depth(phi: Activation, hidden: int) -> None:
    """For ReLU at width 16, the next order, c_2 / n^2, is a quarter of c / n. We therefore use wider ReLU networks."""
    width_law(phi, hidden, 480_000 // hidden, (32, 64, 128) if isinstance(phi, mn.ReLU) else (16, 32, 64))


def test_flow_is_the_limit_of_short_steps() -> None:
    """With one hidden layer, all step sizes use the same samples, and halving the step halves the change in f."""
    f = [limit(spec(mn.Tanh()), y=Y[:, :1], lr=2.0 / many, steps=many).f[-1] for many in (10, 20, 40)]
    apart = [float(np.abs(a - b).max()) for a, b in pairwise(f)]
    assert 1.7 < apart[0] / apart[1] < 2.3, apart


# ------------------------------------------------------------------------------------- arrays, shapes, errors


def test_test_inputs_change_no_training_and_come_after_the_training_set() -> None:
    which, how = spec(mn.Erf(), mn.ReLU(), C=2, b_std=0.1), {"steps": 3, "samples": 32_000}
    both, alone = limit(which, x_test=X_TEST, **how), limit(which, **how)
    shapes = {"f": (4, 5, 2), "features": (4, 2, 5, 5), "gradients": (4, 2, 5, 5), "ntk": (4, 5, 5)}
    for name, shape in shapes.items():
        assert getattr(both, name).shape == getattr(both.error, name).shape == shape
    within("f", both.f[1:, :3], np.hypot(both.error.f[1:, :3], alone.error.f[1:]), alone.f[1:])


def test_bad_input_is_refused_at_once() -> None:
    class Step(Activation):
        """An activation without a registered phi."""

    error: type[Exception]
    for which, error, says in (
        (spec(Step()), mn.UnsupportedLayer, "Step has no phi"),
        (
            mn.Sequential(mn.Dense(3), mn.LayerNorm(), mn.Dense(2)),
            mn.UnsupportedLayer,
            "one activation after it, got Lay",
        ),
        (mn.Sequential(mn.Dense(3), mn.Erf(), mn.ReLU(), mn.Dense(2)), mn.UnsupportedLayer, "got ReLU"),
        (mn.Sequential(mn.Erf(), mn.Dense(3), mn.Dense(2)), mn.UnsupportedLayer, "got Erf"),
        (mn.Sequential(mn.Dense(3), mn.Dense(2), mn.Erf()), ValueError, "no activation at the end"),
        (mn.Sequential(mn.Dense(2)), ValueError, "a hidden layer at least"),
    ):
        with pytest.raises(error, match=says):
            limit(which)
    which = spec(mn.ReLU(), mn.ReLU(), C=2)
    for wrong, error, says in (
        ({"gamma0": 0.0}, ValueError, "gamma0 expects a finite number > 0, got 0"),
        ({"gamma0": 1e-12}, ValueError, "gamma0 expects a number >= 1e-8, .* take analytic.gradient_descent"),
        ({"lr": -1}, ValueError, "lr expects a finite number > 0"),
        ({"samples": 100}, ValueError, "samples expects a whole number >= 128, got 100"),
        ({"steps": 1.5}, ValueError, "steps expects a whole number"),
        ({"rng": 0}, TypeError, "rng expects a numpy.random.Generator"),
        ({"y": Y[:, :1]}, ValueError, r"y expects shape \(N, C\) = \(3, 2\)"),
        ({"x": X * np.nan}, ValueError, "x holds 12 values"),
        ({"x_test": X[:, :2]}, ValueError, "x_test expects shape"),
        ({"samples": 10**12}, MemoryError, "62500000000 neurons over 11 times of 3 examples needs about .* GB"),
        ({"lr": 100.0}, FloatingPointError, "diverged at step .*: take a smaller lr than 100"),
    ):
        with pytest.raises(error, match=says):
            limit(which, **wrong)
    with pytest.raises(MemoryError, match=r"needs about .* GB"):  # a single hidden layer has no (n, n) weights
        limit(spec(mn.ReLU(), C=2), samples=2**60)


def test_the_memory_is_quadratic_in_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    needed: list[int] = []

    def refuse(xp: Any, what: str, need: int, remedy: str) -> None:
        needed.append(need)
        raise MemoryError("no work is done")

    monkeypatch.setattr("analytic.limits.nonlinear.check_memory", refuse)
    for M in range(1, 5):
        with pytest.raises(MemoryError, match="no work is done"):
            limit(spec(mn.ReLU(), mn.ReLU(), C=2), x_test=np.ones((M, X.shape[1])))
    assert np.diff(needed, 3).tolist() == [0]
    assert np.diff(needed, 2)[0] > 0


@pytest.mark.parametrize(("gamma0", "lr"), [(1e-4, 1e-4), (1e-7, 1.0)])
def test_small_changes_of_features_are_not_dropped(gamma0: float, lr: float) -> None:
    """For small gamma0, the limit is descent with the NTK, although features move by less than 1e-7 of their size."""
    which, x, y = spec(mn.Tanh(), mn.Tanh()), X[:2], np.array([[1.0], [-1.0]])
    found = an.feature_learning_limit(
        which, x, y, gamma0=gamma0, lr=lr, steps=5, samples=16_000, rng=np.random.default_rng(1)
    )
    theory = an.gradient_descent(an.kernel(which).ntk(x), y, lr=lr).predict(5)
    assert np.all(np.abs(found.f[5] - theory) < 4 * found.error.f[5])
    assert np.all(4 * found.error.f[5] < 0.2 * np.abs(theory))
