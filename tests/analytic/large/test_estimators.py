"""Wide networks as scikit-learn's estimators: its own checks, and every number against a longer way to it."""

import pickle
import sys
import warnings
from math import inf
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from tests.kit.montecarlo import limit

pytest.importorskip("sklearn", reason="needs the extra sklearn")

from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import WhiteKernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

MODELS = [
    an.NTKRegressor(), an.NTKRegressor(time=100.0), an.NNGPRegressor(activation="erf"), an.NTKClassifier(),
]  # fmt: skip


def digits(n: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = mn.datasets.digits().subset(n, np.random.default_rng(0)).parity()
    return x, y[:, 0]


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_scikit_learns_own_checks(model: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of checks that are skipped
        found = check_estimator(model, on_fail=None)
    assert [check["check_name"] for check in found if check["status"] == "failed"] == []
    skipped = {check["check_name"] for check in found if check["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}  # which scikit-learn 1.6 leaves out without a word
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
    assert np.allclose(early.predict(x[40:]), y[:40].mean())  # untrained: the centre


@pytest.mark.parametrize("model", [an.NTKRegressor(ridge=0.01), an.NNGPRegressor(ridge=0.01)], ids=repr)
def test_leave_one_out_is_leaving_one_out(model: Any) -> None:
    x, y = digits(30)
    model.fit(x, y)
    model.set_params(ridge=model.ridge_, relative=False)
    each = [model.__class__(**model.get_params()).fit(np.delete(x, i, 0), np.delete(y, i)).predict(x[i : i + 1])[0]
            for i in range(len(x))]  # fmt: skip
    assert np.allclose(model.leave_one_out()[:, 0], each, rtol=1e-8, atol=1e-10)
    assert abs(model.leave_one_out()[:, 0] - model.predict(x)).max() > 0.1  # what it must not be: the fit itself


@pytest.mark.parametrize("model", [an.NTKRegressor(time=100.0), an.NNGPRegressor(activation="erf")], ids=repr)
def test_samples_have_the_mean_and_the_covariance(model: Any) -> None:
    x, y = digits(36)
    model.fit(x[:32], np.stack([y[:32], -y[:32]], axis=1))
    mean, cov = model.predict(x[32:], return_cov=True)
    draws = model.sample_y(x[32:], 10_000)
    assert draws.shape == (4, 2, 10_000)
    assert np.array_equal(draws, model.sample_y(x[32:], 10_000, random_state=np.random.RandomState(0)))
    off = (draws - mean[:, :, None]).transpose(1, 0, 2)
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
    mean, std = model._predict(data.x[40:45], std=True)
    spread = np.sqrt(std**2 + model.ridge_)
    draws, rng = 40_000, np.random.default_rng(2)
    outputs = mean[:, None] + spread[:, None, None] * rng.standard_normal((len(p), draws, p.shape[1]))
    wins = (outputs.argmax(axis=2)[:, :, None] == np.arange(p.shape[1])).sum(axis=1)
    z = (wins / draws - p) / np.sqrt(np.maximum(p * (1 - p), 1e-6) / draws)
    assert abs(z).max() < 4.5  # fifty of them
    assert abs((wins / draws - np.full_like(p, 0.1)) / np.sqrt(0.09 / draws)).max() > 20


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


def test_the_kernels_gradient_is_that_of_the_evidence() -> None:
    """At a point off the optimum; the evidence is then higher than where the search began."""
    x, y = digits(50)
    model = GaussianProcessRegressor(an.NetworkKernel(activation="erf") + WhiteKernel(0.1), optimizer=None).fit(x, y)
    theta = model.kernel_.theta + 0.1
    _, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    h = 1e-5
    evidence = model.log_marginal_likelihood
    wanted = [(evidence(theta + h * e) - evidence(theta - h * e)) / (2 * h) for e in np.eye(3)]
    assert np.allclose(gradient, wanted, rtol=1e-6)
    assert not np.allclose(gradient[[1, 0, 2]], wanted, rtol=1e-2)  # the order of the two scales matters
    begin = model.log_marginal_likelihood_value_
    noise = WhiteKernel(0.1, (1e-3, 10.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a bound that is reached
        fitted = GaussianProcessRegressor(an.NetworkKernel(activation="erf") + noise).fit(x, y)
    assert fitted.log_marginal_likelihood_value_ > begin + 5


def test_a_scale_that_is_fixed_has_no_gradient() -> None:
    x, _ = digits(5)
    kernel = an.NetworkKernel(b_std_bounds="fixed", kind="ntk")
    K, gradient = kernel(x, eval_gradient=True)
    both = an.NetworkKernel(kind="ntk")(x, eval_gradient=True)[1]
    assert gradient.shape == (5, 5, 1)
    assert np.array_equal(gradient[..., 0], both[..., 1])  # w_std is the second in alphabetical order
    assert np.allclose(kernel.diag(x), np.diagonal(K))


def test_what_is_refused() -> None:
    x, y = digits(10)
    for model, says in (
        (an.NTKRegressor(activation="cube"), "activation expects one of relu"),
        (an.NTKRegressor(spec=mn.Sequential(mn.ReLU(), mn.Dense(1))), "not Gaussian"),
    ):
        with pytest.raises((ValueError, NotImplementedError, TypeError), match=says):
            model.fit(x, y)
    with pytest.raises(ValueError, match="return_std or return_cov, got both"):
        an.NTKRegressor().fit(x, y).predict(x, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="time=inf, got 2"):
        an.NTKRegressor(time=2.0).fit(x, y).leave_one_out()
    assert an.NTKRegressor().time == inf


def test_without_scikit_learn_an_estimator_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "analytic.large.estimators")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(vars(an), "NTKRegressor", raising=False)
    with pytest.raises(ImportError, match=r"need scikit-learn: pip install minintk\[sklearn\]"):
        _ = an.NTKRegressor
    with pytest.raises(AttributeError, match="NTKTransformer"):
        _ = an.NTKTransformer  # type: ignore[attr-defined]
