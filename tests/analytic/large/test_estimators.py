"""Test the estimators with scikit-learn's own checks, and compare results with explicit computations."""

import pickle
import sys
import warnings
from functools import partial
from math import inf
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

import analytic as an
import minintk as mn
from tests.kit.montecarlo import limit

pytest.importorskip("sklearn", reason="needs the extra sklearn")

from sklearn.datasets import make_friedman1
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import WhiteKernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from analytic.large import estimators
from analytic.large.estimators import RIDGES, _best_scale, shares

MODELS = [
    an.NTKRegressor(), an.NTKRegressor(time=100.0), an.NTKClassifier(landmarks=1000, ridge=0.01),
    an.NTKRegressor(ridge="loo"), *(
        pytest.param(model, marks=pytest.mark.slow)
        for model in (an.NTKClassifier(), an.NNGPRegressor(activation="erf"), an.NNGPClassifier())
    ),
]  # fmt: skip


def digits(n: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = mn.datasets.digits().subset(n, np.random.default_rng(0)).parity()
    return x, y[:, 0]


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_scikit_learns_own_checks(model: Any) -> None:
    """Only checks of sample weights fail, because leave-one-out omits examples and finite times allow no weights."""
    timed = getattr(model, "time", inf) < inf
    left_out = isinstance(model, an.NTKClassifier | an.NNGPClassifier) or model.ridge == "loo"
    expected = ["check_sample_weights_not_overwritten"] if timed else []
    expected += ["check_sample_weight_equivalence_on_dense_data"] if timed or left_out else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # skipped checks warn
        found = check_estimator(model, on_fail=None)
    assert [check["check_name"] for check in found if check["status"] == "failed"] == expected
    skipped = {check["check_name"] for check in found if check["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}  # scikit-learn 1.6 omits the check silently
    assert len(found) > 50


def test_a_regressor_is_the_posterior_of_its_parts() -> None:
    x, y = digits(60)
    model = an.NTKRegressor(depth=1, activation="erf", ridge=0.1, relative=False).fit(x[:40], y[:40])
    mean, cov = model.predict(x[40:], return_cov=True)
    gp = an.posterior(model.kernel_, x[:40], (y[:40] - y[:40].mean())[:, None], ridge=0.1, kind="ntk")
    want, want_cov = gp.predict(x[40:], cov=True)
    assert np.allclose(mean, want[:, 0] + y[:40].mean(), rtol=1e-12)
    assert np.allclose(cov, want_cov, rtol=1e-12)
    assert np.allclose(model.predict(x[40:], return_std=True)[1] ** 2, np.diagonal(cov), rtol=1e-8)
    early = an.NTKRegressor(depth=1, activation="erf", time=0.0).fit(x[:40], y[:40])
    assert np.allclose(early.predict(x[40:]), y[:40].mean())  # at time 0, predictions are the mean of the targets


@pytest.mark.parametrize("model", [an.NTKRegressor(ridge=0.01), an.NNGPRegressor(ridge=0.01)], ids=repr)
def test_leave_one_out_is_leaving_one_out(model: Any) -> None:
    x, y = digits(30)
    model.fit(x, y)
    model.set_params(ridge=model.ridge_, relative=False)
    each = [model.__class__(**model.get_params()).fit(np.delete(x, i, 0), np.delete(y, i)).predict(x[i : i + 1])[0]
            for i in range(len(x))]  # fmt: skip
    assert np.allclose(model.leave_one_out(), each, rtol=1e-8, atol=1e-10)
    assert abs(model.leave_one_out() - model.predict(x)).max() > 0.1  # negative control: predictions of the full fit


def test_leave_one_out_is_as_large_as_the_targets() -> None:
    x, y = digits(12)
    for target in (y, y[:, None], np.stack([y, -y], axis=1)):
        model = an.NNGPRegressor().fit(x, target)
        assert model.leave_one_out().shape == model.predict(x).shape == target.shape
    labels = np.where(y > 0, "even", "odd")
    assert an.NTKClassifier().fit(x, labels).leave_one_out().shape == (12, 2)


MODES: list[dict[str, Any]] = [{}, {"time": 50.0}, {"ridge": "loo"}]


@pytest.mark.parametrize("how", MODES, ids=str)
def test_spreads_have_the_scale_of_normalised_targets(how: dict[str, Any]) -> None:
    """Predicted standard deviations equal the targets' scale times those of a fit to explicitly normalised targets."""
    x, y = digits(36)
    Y = np.stack([100 * y + 7, y + x[:, 20], np.full(36, 0.3)], axis=1)
    mean, std = Y[:30].mean(axis=0), np.append(Y[:30, :2].std(axis=0), 1.0)
    ours = an.NTKRegressor(**how, normalize_y=True).fit(x[:30], Y[:30])
    want = an.NTKRegressor(**how).fit(x[:30], (Y[:30] - mean) / std)
    assert np.allclose(ours.std_, std, rtol=1e-12)
    f, bars = ours.predict(x[30:], return_std=True)
    _, cov = ours.predict(x[30:], return_cov=True)
    wanted = want.predict(x[30:], return_std=True), want.predict(x[30:], return_cov=True)
    assert np.allclose(f, wanted[0][0] * std + mean, rtol=1e-9)
    assert np.allclose(bars, wanted[0][1] * std, rtol=1e-9)
    assert np.allclose(cov, wanted[1][1] * std**2, rtol=1e-9)
    assert np.allclose(ours.sample_y(x[30:], 4), want.sample_y(x[30:], 4) * std[:, None] + mean[:, None], rtol=1e-6)
    if "time" not in how:
        assert np.allclose(ours.leave_one_out(), want.leave_one_out() * std + mean, rtol=1e-8)
    raw = an.NTKRegressor(**how).fit(x[:30], Y[:30]).predict(x[30:], return_std=True)
    assert np.allclose(raw[0], f, rtol=1e-6)
    if "ridge" not in how:
        assert np.allclose(raw[1], wanted[0][1], rtol=1e-9)
    assert bars[:, 0].mean() > 50 * raw[1][:, 0].mean()


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_normalised_targets_may_have_squares_beyond_the_range(unit: float) -> None:
    x, y = digits(36)
    want, got = (
        an.NTKRegressor(normalize_y=True).fit(x[:30], scale * y[:30]).predict(x[30:], return_std=True)
        for scale in (1.0, unit)
    )
    for one, other in zip(want, got, strict=True):
        np.testing.assert_allclose(other, unit * one, rtol=1e-9)


def test_intervals_of_the_gaussian_process_cover_and_raw_spreads_do_not() -> None:
    """Standard deviations of 400 z-scores are near 1 for a fitted Gaussian process, and above 3 for our regressors."""
    X, y = make_friedman1(600, noise=1.0, random_state=0)
    X = (X - 0.5) * 12**0.5

    def z(model: Any) -> float:
        mean, std = model.fit(X[:200], y[:200]).predict(X[200:], return_std=True)
        return float(np.std((y[200:] - mean) / std))

    assert abs(z(GaussianProcessRegressor(an.NetworkKernel() + WhiteKernel(), normalize_y=True)) - 1) < 0.15
    assert min(z(an.NNGPRegressor()), z(an.NTKRegressor())) > 3


def test_the_evidence_of_an_estimator_is_that_of_its_posterior() -> None:
    """The evidence is computed for centred targets or, with normalize_y, for targets with mean 0 and variance 1."""
    x, y = digits(30)
    model = an.NNGPRegressor(activation="erf").fit(x, 3 * y)
    gp = an.posterior(model.kernel_, x, 3 * (y - y.mean())[:, None], ridge=model.ridge_)
    assert np.isclose(model.log_marginal_likelihood(), gp.log_marginal_likelihood(), rtol=1e-12)
    divided = an.NNGPRegressor(activation="erf", normalize_y=True).fit(x, 3 * y)
    plain = an.NNGPRegressor(activation="erf").fit(x, (y - y.mean()) / y.std())
    assert np.isclose(divided.log_marginal_likelihood(), plain.log_marginal_likelihood(), rtol=1e-9)
    assert abs(divided.log_marginal_likelihood() - model.log_marginal_likelihood()) > 1
    with pytest.raises(ValueError, match="log_marginal_likelihood expects landmarks=None, got 5"):
        an.NNGPRegressor(landmarks=5).fit(x, y).log_marginal_likelihood()


WEIGHTS = np.random.default_rng(3).uniform(0.2, 3, 30)


def test_leave_one_out_with_weights() -> None:
    x, y = digits(30)
    model = an.NTKRegressor(ridge=0.01).fit(x, y, WEIGHTS)
    model.set_params(ridge=model.ridge_, relative=False)
    each = [an.NTKRegressor(ridge=model.ridge_, relative=False)
            .fit(np.delete(x, i, 0), np.delete(y, i), np.delete(WEIGHTS, i)).predict(x[i : i + 1])[0]
            for i in range(len(x))]  # fmt: skip
    assert np.allclose(model.leave_one_out(), each, rtol=1e-8, atol=1e-10)
    assert abs(an.NTKRegressor(ridge=0.01).fit(x, y).leave_one_out() - each).max() > 1e-4


@pytest.mark.parametrize("how", [{}, {"landmarks": np.array([0, 3, 5, 8, 12, 14, 18, 21, 23, 27])}], ids=str)
def test_weights_are_repetitions(how: dict[str, Any]) -> None:
    x, y = digits(30)
    times = np.tile([1, 0, 2], 10)
    again = np.repeat(np.arange(30), times)
    fit = an.NTKRegressor(ridge=0.1, **how).fit(x, y, times)
    at = {name: np.searchsorted(again, value) for name, value in how.items()}
    want = an.NTKRegressor(ridge=0.1, **at).fit(x[again], y[again]).predict(x)
    assert np.allclose(fit.predict(x), want, atol=1e-5 if how else 1e-9)
    kept = {name: np.searchsorted(np.flatnonzero(times), value) for name, value in how.items()}
    assert abs(an.NTKRegressor(ridge=0.1, **kept).fit(x[times > 0], y[times > 0]).predict(x) - want).max() > 1e-3


def test_equal_weights_train_for_longer() -> None:
    """Weights w multiply the loss but not the ridge, so time 5 becomes 5 w and the ridge becomes ridge / w."""
    x, y = digits(60)
    how: dict[str, Any] = {"relative": False}
    heavy = an.NTKRegressor(time=5.0, ridge=0.2, **how).fit(x, y, np.full(60, 2.0))
    np.testing.assert_allclose(heavy.predict(x), an.NTKRegressor(time=10.0, ridge=0.1, **how).fit(x, y).predict(x))


@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["plain", "weighted"])
def test_the_ridge_is_that_of_the_least_left_out_error(weight: Any) -> None:
    """Check that `ridge_` minimises the leave-one-out error over RIDGES times the kernel's mean diagonal."""
    x, y = digits(30)
    y = y + np.random.default_rng(0).standard_normal(30)
    w = np.ones(30) if weight is None else weight
    model = an.NTKRegressor(ridge="loo").fit(x, y, weight)
    size = np.average(model.kernel_.diag(x).ntk, weights=w)
    errors = []
    for ridge in RIDGES * size:
        left = an.NTKRegressor(ridge=ridge, relative=False).fit(x, y, weight).leave_one_out()
        errors.append(w @ (y - left) ** 2)
    best = int(np.argmin(errors))
    assert 0 < best < len(RIDGES) - 1
    assert np.isclose(model.ridge_, RIDGES[best] * size)
    again = an.NTKRegressor(ridge=model.ridge_, relative=False).fit(x, y, weight)
    assert np.allclose(model.predict(x), again.predict(x), rtol=1e-8)
    assert np.allclose(model.predict(x, return_std=True)[1], again.predict(x, return_std=True)[1], rtol=1e-6)


def test_landmarks_are_solved_as_by_solve() -> None:
    x, y = digits(60)
    model = an.NTKRegressor(landmarks=15, ridge=0.1, relative=False).fit(x[:40], y[:40])
    centred = (y[:40] - y[:40].mean())[:, None]
    fit = an.solve(model.kernel_, x[:40], centred, ridge=0.1, by="landmarks", landmarks=15)
    assert np.allclose(model.predict(x), fit.predict(x)[:, 0] + y[:40].mean(), atol=1e-5)
    exact = an.NTKRegressor(ridge=0.1, relative=False).fit(x[:40], y[:40])
    everything = an.NTKRegressor(landmarks=40, ridge=0.1, relative=False).fit(x[:40], y[:40])
    assert np.allclose(everything.predict(x), exact.predict(x), atol=1e-5)
    assert abs(model.predict(x) - exact.predict(x)).max() > 0.01


def test_fit_factorises_and_a_copy_has_the_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = digits(40)
    models = [an.NTKRegressor().fit(x, y), an.NTKRegressor(time=5.0).fit(x, y), an.NTKRegressor(landmarks=9).fit(x, y)]
    want = [model.predict(x) for model in models]
    copies = [pickle.loads(pickle.dumps(model)) for model in models]  # noqa: S301
    for name in ("analytic.training.posterior.cholesky", "analytic.training.eigen.spectrum"):
        monkeypatch.setattr(name, lambda *args, **how: pytest.fail("factorised again"))
    monkeypatch.setattr("analytic.training.dynamics.spectrum", lambda *args: pytest.fail("again"), raising=False)
    assert all(np.array_equal(model.predict(x), f) for model, f in zip(copies, want, strict=True))


@pytest.mark.parametrize("model", [an.NTKRegressor(time=100.0), an.NNGPRegressor(activation="erf")], ids=repr)
def test_samples_have_the_mean_and_the_covariance(model: Any) -> None:
    x, y = digits(36)
    model.fit(x[:32], np.stack([y[:32], -y[:32]], axis=1))
    mean, cov = model.predict(x[32:], return_cov=True)
    draws = model.sample_y(x[32:], 10_000)
    assert draws.shape == (4, 2, 10_000)
    assert np.array_equal(draws, model.sample_y(x[32:], 10_000, random_state=np.random.RandomState(0)))
    assert np.array_equal(cov[..., 0], cov[..., 1])
    cov, off = cov[..., 0], (draws - mean[:, :, None]).transpose(1, 0, 2)
    z = [off.mean(axis=2) / np.sqrt(np.diagonal(cov) / 10_000)]
    error = np.sqrt((cov**2 + np.outer(np.diagonal(cov), np.diagonal(cov))) / 10_000)
    z += [(one @ one.T / 10_000 - cov) / error for one in off]
    assert max(abs(one).max() for one in z) < limit(40)
    assert abs((off[0] @ off[0].T / 10_000 - cov / 1.1) / error).max() > limit(40)
    assert model.fit(x[:32], y[:32]).sample_y(x[32:], 3).shape == (4, 3)


def test_a_probability_is_a_share_of_networks() -> None:
    data = mn.datasets.digits().subset(60, np.random.default_rng(1))
    model = an.NTKClassifier(depth=1, ridge=0.1).fit(data.x[:40], data.labels[:40])
    p = model.predict_proba(data.x[40:45])
    (mean,) = model._predict(data.x[40:45])
    spread = np.full(5, model.scale_)
    draws, rng = 40_000, np.random.default_rng(2)
    outputs = mean[:, None] + spread[:, None, None] * rng.standard_normal((len(p), draws, p.shape[1]))
    wins = (outputs.argmax(axis=2)[:, :, None] == np.arange(p.shape[1])).sum(axis=1)
    z = (wins / draws - p) / np.sqrt(np.maximum(p * (1 - p), 1e-6) / draws)
    assert abs(z).max() < 4.5  # z has fifty entries
    assert abs((wins / draws - np.full_like(p, 0.1)) / np.sqrt(0.09 / draws)).max() > 20


def test_shares_are_an_integral() -> None:
    """Shares equal Phi((f_1 - f_2) / sqrt 2) for two classes and a quadrature for five. Large f do not give NaN."""
    f = np.random.default_rng(0).standard_normal((20, 5)) * 3
    two = shares(f[:, :2])
    assert np.allclose(two[:, 0], ndtr((f[:, 0] - f[:, 1]) / 2**0.5), rtol=1e-12)
    t = np.linspace(-25, 25, 20_001)[:, None, None]
    below = ndtr(t - f)
    others = np.stack([np.delete(below, k, axis=2).prod(axis=2) for k in range(5)], axis=2)
    p = (np.exp(-((t - f) ** 2) / 2) * others).sum(axis=0) * (50 / 20_000) / np.sqrt(2 * np.pi)
    assert np.allclose(shares(f), p, atol=1e-13)
    assert np.allclose(p.sum(axis=1), 1)
    assert np.array_equal(shares(np.array([[1e4, 0.0, -1e4]])), [[1.0, 0.0, 0.0]])


@pytest.mark.parametrize("classes", [10, 300])
def test_a_scale_is_found_for_many_classes(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For C classes, a search with at most 25 max(20,000, 100 C) shares finds the scale 0.4 of the label noise."""
    rng, sizes = np.random.default_rng(0), []
    f = np.eye(classes)[np.arange(2000) % classes]
    labels = (f + 0.4 * rng.standard_normal(f.shape)).argmax(axis=1)

    def sized(f: Any) -> Any:
        sizes.append(f.size)
        return shares(f)

    monkeypatch.setattr(estimators, "shares", sized)
    scale = _best_scale(f, np.eye(classes)[labels], np.ones(2000))
    assert sum(sizes) < 25 * max(2000 * 10, 100 * classes)
    assert abs(np.log(scale / 0.4)) < (0.1 if classes == 10 else 0.2)


@pytest.mark.parametrize("how", [{"ridge": 0.0}, {"ridge": 1.0}, {"time": 300.0}, {"landmarks": 60}], ids=str)
def test_probabilities_are_calibrated(how: dict[str, Any]) -> None:
    """The log-loss on other digits is near the lowest over seven scales. Scales 4 times larger or smaller are worse."""
    one, two = mn.datasets.digits().split(200, 600, np.random.default_rng(0))
    model = an.NTKClassifier(**how).fit(one.x, one.labels)

    def loss(scale: float) -> float:
        (mean,) = model._predict(two.x)
        p = shares(mean / scale)[np.arange(600), np.searchsorted(model.classes_, two.labels)]
        return -float(np.log(np.maximum(p, 1e-300)).mean())

    losses = [loss(model.scale_ * factor) for factor in (0.25, 0.5, 0.7, 1, 1.4, 2, 4)]
    assert losses[3] < min(losses) + 0.03
    assert min(losses[0], losses[-1]) > losses[3] + 0.1
    assert np.allclose(np.exp(model.predict_log_proba(two.x)), model.predict_proba(two.x))


@pytest.mark.parametrize("how", [{"time": 1e5}, {"landmarks": 300}], ids=str)
def test_random_labels_give_no_confidence(how: dict[str, Any]) -> None:
    """With labels that no input predicts, the log-loss on new data is near log 2, also if the fit interpolates."""
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((500, 10)), rng.integers(0, 2, 500)
    model = an.NTKClassifier(**how).fit(x[:300], labels[:300])
    p = model.predict_proba(x[300:])[np.arange(200), labels[300:]]
    assert -float(np.log(p).mean()) < 0.8


def test_generalised_cross_validation_by_probes_is_near_the_trace() -> None:
    """With all examples as landmarks, the estimate of 1 - tr(hat matrix) / N is near ridge tr((K + ridge)^-1) / N."""
    x, y = digits(60)
    model = an.NTKRegressor(landmarks=60, ridge=0.05).fit(x, y)
    G = model.kernel_.ntk(x) + model.ridge_ * np.eye(60)
    want = np.trace(np.linalg.inv(G)) * model.ridge_ / 60
    got = (y - model.predict(x)) / (y - model._held_out()[0][:, 0])
    assert np.allclose(got, got[0])
    assert abs(got[0] - want) < 0.1
    early = an.NTKRegressor(time=1e12, ridge=0.05).fit(x, y)
    got = (y - early.predict(x)) / (y - early._held_out()[0][:, 0])
    assert np.allclose(got, want, rtol=1e-4)


def test_grids_pipelines_images_and_pickles() -> None:
    x, y = digits(120)
    conv = mn.Sequential(mn.Conv2d(1, 3, w_std=2**0.5), mn.ReLU(), mn.Flatten(), mn.Dense(1))
    grid = GridSearchCV(
        make_pipeline(StandardScaler(), an.NTKClassifier()),
        [{"ntkclassifier__depth": [1, 3]}, {"ntkclassifier__spec": [conv], "ntkclassifier__image_shape": [(8, 8, 1)]}],
        cv=3,
    ).fit(x[:80], y[:80])
    assert grid.score(x[80:], y[80:]) > 0.8
    again = pickle.loads(pickle.dumps(grid.best_estimator_))  # noqa: S301
    assert np.array_equal(again.predict(x[80:]), grid.predict(x[80:]))


def test_equal_rows_without_a_ridge_get_the_mean_of_their_targets() -> None:
    x, y = digits(10)
    X, y = np.vstack([x, x[:1]]), np.append(y, 5.0)
    model = an.NTKRegressor(ridge=0).fit(X, y)
    assert np.allclose(model.predict(X), np.append((y[0] + 5) / 2, [*y[1:10], (y[0] + 5) / 2]))
    with pytest.raises(ValueError, match="leave_one_out expects a kernel"):
        model.leave_one_out()
    line = np.linspace(0, 1, 40)[:, None]
    with pytest.raises(ValueError, match="cannot be resolved"):
        an.NTKRegressor(activation="erf", depth=1, ridge=0).fit(line, line[:, 0]).predict(line)


def test_what_is_refused() -> None:
    x, y = digits(10)
    for model, says in (
        (an.NTKRegressor(activation="cube"), "activation expects one of relu"),
        (an.NTKRegressor(spec=mn.Sequential(mn.ReLU(), mn.Dense(1))), "not Gaussian"),
        (an.NTKRegressor(depth=0), "^depth expects a whole number >= 1, got 0"),
        (an.NTKRegressor(ridge="lo"), "^ridge, unless 'loo', expects a finite number >= 0, got 'lo'"),  # type: ignore[arg-type]
        (an.NTKRegressor(w_std=-1), "^w_std expects a finite number > 0, got -1"),
        (an.NTKRegressor(image_shape=(2, 2, 1)), r"^image_shape=\(2, 2, 1\) expects 4 columns in X, got 64"),
    ):
        with pytest.raises((ValueError, NotImplementedError, TypeError), match=says):
            model.fit(x, y)
    for wrong in (partial(an.NTKRegressor, None, 1e-3), partial(an.NTKClassifier, None, 1e-3)):
        with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3 were given"):
            wrong()  # the second argument could be meant as `time`
    with pytest.raises(ValueError, match="return_std or return_cov, got both"):
        an.NTKRegressor().fit(x, y).predict(x, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="two classes or more, got one class, 'a'"):
        an.NTKClassifier().fit(x, ["a"] * 10)
    for how in ({"sample_weight": np.arange(10)}, {"landmarks": 5}, {"ridge": "loo"}):
        model = an.NTKRegressor(time=2.0).set_params(**{k: v for k, v in how.items() if k != "sample_weight"})
        with pytest.raises(ValueError, match=r"expect time=inf, got 2"):
            model.fit(x, y, how.get("sample_weight"))
    with pytest.raises(ValueError, match="expects landmarks=None, for it needs"):
        an.NTKRegressor(ridge="loo", landmarks=3).fit(x, y)
    with pytest.raises(ValueError, match="return_std and return_cov expect landmarks=None"):
        an.NTKRegressor(landmarks=3).fit(x, y).predict(x, return_std=True)
    for sign in (-1, 0):
        with pytest.raises(ValueError, match=r"sample_weight expects numbers >= 0|at least one non-zero"):
            an.NTKRegressor().fit(x, y, sign * np.ones(10))
    with pytest.raises((ValueError, TypeError), match="ridge"):
        an.NTKRegressor(ridge="gcv").fit(x, y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="landmarks=None, time=inf, got 3, inf"):
        an.NTKRegressor(landmarks=3).fit(x, y).leave_one_out()
    with pytest.raises(ValueError, match="time=inf, got None, 2"):
        an.NTKRegressor(time=2.0).fit(x, y).leave_one_out()
    for time in (np.nan, -1.0, "1"):
        with pytest.raises(ValueError, match="t expects numbers >= 0"):
            an.NTKRegressor(time=time).fit(x, y)  # type: ignore[arg-type]
    assert an.NTKRegressor().time == inf


def test_without_scikit_learn_an_estimator_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "analytic.large.estimators")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(vars(an), "NTKRegressor", raising=False)
    with pytest.raises(ImportError, match=r"need scikit-learn: pip install minintk\[sklearn\]"):
        _ = an.NTKRegressor
    with pytest.raises(AttributeError, match="NTKTransformer"):
        _ = an.NTKTransformer  # type: ignore[attr-defined]


def test_a_fit_needs_the_kernel_and_its_factor_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A float32 fit to N examples needs 12 N^2 bytes. Error bars would need 40 N^2 bytes."""
    N = 400
    X = np.random.default_rng(0).standard_normal((N, 3)).astype(np.float32)
    monkeypatch.setattr("analytic.training.eigen.available_memory", lambda xp: 13 * N**2)
    model = an.NTKRegressor().fit(X, X[:, 0])
    monkeypatch.setattr("analytic.training.eigen.available_memory", lambda xp: 11 * N**2)
    with pytest.raises(MemoryError, match=r"training on the kernel of 400 .* take analytic\.solve.* fewer examples$"):
        model.fit(X, X[:, 0])
    with pytest.raises(MemoryError, match=r"this prediction of 400 outputs .* fewer examples, std for cov$"):
        model.predict(X, return_cov=True)


@pytest.mark.parametrize("outputs", [None, 2])
def test_error_bars_have_the_shapes_and_values_of_scikit_learns(outputs: int | None) -> None:
    """Compare standard deviations and covariances with scikit-learn's Gaussian process, for y : (N,) and (N, C)."""
    rng = np.random.default_rng(0)
    X, X_test = rng.standard_normal((20, 3)), rng.standard_normal((5, 3))
    y = np.sin(X[:, :outputs] if outputs else X[:, 0])
    y = y - y.mean(axis=0)
    theirs = GaussianProcessRegressor(an.NetworkKernel(activation="erf"), alpha=0.1, optimizer=None).fit(X, y)
    scales: dict[str, Any] = {"activation": "erf", "w_std": 1.0, "b_std": 1.0, "ridge": 0.1, "relative": False}
    ours = an.NNGPRegressor(**scales).fit(X, y)
    bars: list[dict[str, Any]] = [{"return_std": True}, {"return_cov": True}]
    for how in bars:
        for one, two in zip(ours.predict(X_test, **how), theirs.predict(X_test, **how), strict=True):
            assert one.shape == two.shape
            np.testing.assert_allclose(one, two, rtol=1e-7, atol=1e-9)


def test_indices_of_landmarks_count_examples_of_weight_zero() -> None:
    rng = np.random.default_rng(0)
    x, y, x_test = rng.standard_normal((12, 3)), rng.standard_normal(12), rng.standard_normal((3, 3))
    found = []
    for tiny in (0.0, 1e-12):
        weight = np.where(np.arange(12) < 4, tiny, 1.0)
        for at in ([4, 5, 6], [9, 10, 11]):
            fit = an.NTKRegressor(landmarks=at, ridge=1e-3).fit(x, y, sample_weight=weight)
            found.append(fit.predict(x_test))
            if not tiny:
                fit = an.NTKRegressor(landmarks=[i - 4 for i in at], ridge=1e-3).fit(x[4:], y[4:])
                np.testing.assert_allclose(found[-1], fit.predict(x_test), rtol=1e-5)
    np.testing.assert_allclose(found[:2], found[2:], rtol=1e-5)
