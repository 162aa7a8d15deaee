"""Kernels as functions of the angle: equal to the layers one by one, at any depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn


def deep(activation: mn.spec.Layer, depth: int) -> mn.Sequential:
    w_std = 2**0.5 if activation == mn.ReLU() else 1.1
    return mn.Sequential(*[mn.Dense(16, w_std=w_std), activation] * depth, mn.Dense(1, w_std=0.8))


def check_equal(kernel: Callable[[Any], Any], spec: mn.Sequential, parametrization: Any, bound: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4)) * np.logspace(-3, 3, 30)[:, None]
    x[1], x[2], x[3], x[4] = x[0], -3 * x[0], x[0] * (1 + 1e-9 * rng.normal(size=4)), 0
    truth = an.kernel(spec, parametrization)
    for a, b, d in zip(kernel(x), truth.both(x), truth.diag(x)):
        scale = np.sqrt(np.outer(d, d))
        assert (np.abs(a - b) <= bound * scale).all()


@pytest.mark.parametrize("activation", [mn.ReLU(), mn.LeakyReLU(0.2), mn.Abs(), mn.Identity()], ids=str)
@pytest.mark.parametrize("depth", [1, 3, 30])
def test_the_layers_one_by_one(activation: mn.spec.Layer, depth: int) -> None:
    spec = deep(activation, depth)
    for parametrization in (mn.NTK(), mn.Standard()):
        angular = an.angular(spec, parametrization)
        stated = angular.error(np.eye(4))
        assert stated < 1e-13
        check_equal(angular.both, spec, parametrization, 1e-13)
    with pytest.raises(AssertionError):
        check_equal(an.angular(deep(activation, depth + 1)).both, spec, mn.NTK(), 1e-3)


def test_residual_networks() -> None:
    block = mn.Residual(mn.Sequential(mn.ReLU(), mn.Dense(16, w_std=0.5)))
    spec = mn.Sequential(mn.Dense(16), block, block, mn.ReLU(), mn.Dense(1))
    check_equal(an.angular(spec).both, spec, mn.NTK(), 1e-13)


def test_it_is_a_kernel_like_any_other() -> None:
    spec = deep(mn.ReLU(), 3)
    x = np.random.default_rng(1).normal(size=(9, 4))
    angular, kernel = an.angular(spec), an.kernel(spec)
    np.testing.assert_array_equal(angular.diag(x).ntk, kernel.diag(x).ntk)
    np.testing.assert_allclose(angular.ntk(x, x[:4]), kernel.ntk(x, x[:4]), atol=1e-13)
    assert angular.nngp(x.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(angular.ntk(x.astype(np.float32)), kernel.ntk(x), atol=2e-5)


def test_as_a_function() -> None:
    """On the circle, |x|^2 = d: K(x, x') is kappa of the angle."""
    spec = deep(mn.ReLU(), 5)
    theta = np.linspace(0, np.pi, 19)
    x = 2**0.5 * np.stack((np.cos(theta), np.sin(theta)), axis=1)
    for f, k in zip(an.angular(spec).at(theta), an.kernel(spec).both(x)):
        np.testing.assert_allclose(f, k[0], atol=2e-13)
    standard = an.angular(spec, mn.Standard())
    np.testing.assert_allclose(standard.at(theta, 2).ntk, an.kernel(spec, mn.Standard()).ntk(x)[0], atol=2e-11)
    assert an.angular(spec).at(theta.astype(np.float32)).ntk.dtype == np.float32


def test_refusals() -> None:
    with pytest.raises(mn.UnsupportedLayer, match=r"expects no biases \(b_std = 0\)"):
        an.angular(mn.Sequential(mn.Dense(4, b_std=0.1), mn.ReLU(), mn.Dense(1)))
    with pytest.raises(mn.UnsupportedLayer, match="expects no biases"):
        an.angular(mn.Sequential(mn.Dense(4, b_std=0.1, b_init="zeros"), mn.ReLU(), mn.Dense(1)))
    with pytest.raises(mn.UnsupportedLayer, match="got Erf"):
        an.angular(mn.Sequential(mn.Dense(4), mn.Erf(), mn.Dense(1)))
    with pytest.raises(mn.UnsupportedLayer, match="got Tanh"):
        an.angular(mn.Sequential(mn.Dense(4), mn.Residual(mn.Sequential(mn.Tanh(), mn.Dense(4))), mn.Dense(1)))
    with pytest.raises(ValueError, match="angles between 0 and pi"):
        an.angular(deep(mn.ReLU(), 1)).at(np.array([-0.1]))
