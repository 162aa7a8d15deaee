"""Test `NetworkKernel` as a kernel of scikit-learn's Gaussian processes: derivatives, scales, repr and errors."""

import warnings
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn

pytest.importorskip("sklearn", reason="needs the extra sklearn")

from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge


def digits(n: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = mn.datasets.digits().subset(n, np.random.default_rng(0)).parity()
    return x, y[:, 0]


def test_the_kernels_gradient_is_that_of_the_evidence() -> None:
    """Away from the optimum, the gradient of the evidence equals finite differences. Fitting increases the evidence."""
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
        warnings.simplefilter("ignore")  # the search warns at the bounds of the parameters
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


def test_a_kernel_says_what_it_is() -> None:
    """The repr of a kernel evaluates to an equal kernel. The repr is the same in sums, products and clones."""
    conv = mn.Sequential(mn.Conv2d(1, 3), mn.ReLU(), mn.Flatten(), mn.Dense(1))
    names = {name: getattr(mn, name) for name in mn.__all__}
    names |= {"NetworkKernel": an.NetworkKernel, "WhiteKernel": WhiteKernel}
    for kernel in (an.NetworkKernel(depth=3, activation="erf", kind="ntk"), an.NetworkKernel(conv, b_std=0.5)):
        again = eval(repr(kernel), names)  # noqa: S307
        assert again == clone(kernel) == kernel
        assert again != clone(kernel).set_params(w_std=2.0)
    both = ConstantKernel(4.0) * an.NetworkKernel(w_std=1.6, b_std=3.4) + WhiteKernel(0.1)
    one = "NetworkKernel(depth=2, activation='relu', w_std=1.6, b_std=3.4, kind='nngp')"
    assert repr(both) == f"2**2 * {one} + WhiteKernel(noise_level=0.1)"
    assert repr(both.clone_with_theta(both.theta)) == repr(both)


def test_a_kernel_without_biases_stays_without(recwarn: pytest.WarningsRecorder) -> None:
    x, y = digits(8)
    kernel = an.NetworkKernel(b_std=0.0)
    assert np.isfinite(kernel.theta).all()
    assert kernel(x, eval_gradient=True)[1].shape == (8, 8, 1)
    fitted = GaussianProcessRegressor(kernel + WhiteKernel(), alpha=1e-3).fit(x, y).kernel_
    assert fitted.k1.b_std == 0
    assert fitted.k1.w_std != 1
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning) and "log" in str(w.message)]


def test_outputs_of_erf_are_bounded_by_the_scales() -> None:
    """Tripling w_std multiplies the kernel of two hidden layers by 3^6 for ReLU, but not for Erf."""
    x = 1e3 * digits(5)[0]
    assert np.all(an.NetworkKernel(activation="erf", w_std=3.0, b_std=0.5).diag(x) <= 3.0**2 + 0.5**2)
    for name, same in (("relu", True), ("erf", False)):
        kernel = an.NetworkKernel(activation=name, b_std=0.0)
        tripled = kernel.clone_with_theta(kernel.theta + np.log(3.0))
        assert np.allclose(tripled(x), 3.0**6 * kernel(x), rtol=1e-9) == same


def test_what_a_kernel_refuses() -> None:
    x, y = digits(6)
    how: dict[str, Any]
    for how, says in (
        ({"w_std": -1.0}, "w_std expects a finite number > 0, got -1"),
        ({"b_std": -1.0}, "b_std expects a finite number >= 0, got -1"),
        ({"depth": 0}, "depth expects a whole number >= 1, got 0"),
        ({"w_std_bounds": (1,)}, "w_std_bounds expects 'fixed' or two numbers"),
        ({"b_std_bounds": (0, 1)}, "b_std_bounds expects 'fixed' or two numbers"),
        ({"b_std_bounds": "free"}, "b_std_bounds expects 'fixed' or two numbers"),
    ):
        with pytest.raises(ValueError, match=f"^{says}"):
            GaussianProcessRegressor(an.NetworkKernel(**how)).fit(x, y)
    with pytest.raises(TypeError, match="expected a spec such as"):
        an.NetworkKernel("relu")(x)


def test_a_kernel_of_rows_says_what_to_write_instead() -> None:
    """KernelRidge passes two single rows to its kernel function. The error says how to pass a matrix instead."""
    X = np.eye(3)
    with pytest.raises(ValueError, match=r'got \(3,\); for scikit-learn\'s KernelRidge, kernel="precomputed"'):
        KernelRidge(kernel=an.kernel(mn.zoo.mlp(1, 8, 1)).ntk).fit(X, X)


def test_without_free_parameters_the_gradient_is_empty() -> None:
    x, y = np.random.default_rng(0).standard_normal((7, 3)), np.arange(7.0)
    fixed = an.NetworkKernel(w_std_bounds="fixed", b_std_bounds="fixed")
    assert fixed(x, eval_gradient=True)[1].shape == (7, 7, 0)
    GaussianProcessRegressor(fixed + WhiteKernel(0.1)).fit(x, y)
