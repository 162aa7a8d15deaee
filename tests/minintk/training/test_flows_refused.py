"""Test the errors that flows raise, and their messages."""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.training.integrators import FlowSettings
from tests.minintk.training.test_flows import NET, SIGNS, THETA, X, Y, last


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"times": ()}, ValueError, r"times expects numbers > 0, increasing, got \(\)"),
        ({"times": (1.0, 1.0)}, ValueError, r"times expects numbers > 0, increasing"),
        ({"times": (0.0, 1.0)}, ValueError, r"times expects numbers > 0, increasing"),
        ({"times": np.nan}, ValueError, r"times expects numbers > 0, increasing, got nan"),
        ({"times": inf}, ValueError, r"times up to inf need a loss that reaches zero .* mn\.hinge, got Mean"),
        ({"tau": 1.0, "mu": 2.0}, ValueError, r"tau, or mu for tau = t/mu, not both, got tau=1\.0, mu=2\.0"),
        ({"tau": 0.0}, ValueError, r"tau expects a finite number > 0, got 0\.0"),
        ({"mu": inf}, ValueError, r"mu expects a finite number > 0, got inf"),
        ({"temperature": -1.0}, ValueError, r"temperature expects a finite number >= 0, got -1\.0"),
        ({"temperature": 1.0}, TypeError, r"rng, of a stochastic flow, expects .*, got None"),
        (
            {"temperature": 1.0, "rng": np.random.default_rng(0), "by": mn.Solver()},
            ValueError, r"not smooth, as by=Solver",
        ),
        (
            {"loss": mn.hinge, "by": mn.Solver()}, ValueError,
            r"gradient of Hinge\(alpha=1\.0\) jumps, .* use by=Steps\(\), or a smooth loss, mn\.logistic",
        ),
        ({"by": "RK45"}, TypeError, r"by expects mn\.Steps\(\.\.\.\) or mn\.Solver\(\.\.\.\), got 'RK45'"),
        ({"loss": "mse"}, TypeError, r"loss expects a loss such as mn\.mse or mn\.softmax_cross_entropy, got 'mse'"),
        ({"loss": mn.hinge}, ValueError, r"expects labels y = -1 or 1"),
    ],
)  # fmt: skip
def test_invalid_settings(arguments: Any, error: type[Exception], words: str) -> None:
    """Invalid settings raise an error in the call itself, before the first moment."""
    how: dict[str, Any] = {"loss": mn.mse, "times": 1.0, **arguments}
    with pytest.raises(error, match=words):
        mn.flow(NET, THETA, X, Y, **how)
    with pytest.raises(error, match=words):
        mn.kernel_flow(np.eye(6), np.zeros((6, 1)), Y, **how)


def test_arrays_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match=r"expected a model such as mn\.Network\(.*\), got Sequential"):
        mn.flow(NET.spec, THETA, X, Y, loss=mn.mse, times=1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"y must have the dtype of theta, float64, got float32"):
        mn.flow(NET, THETA, X, Y.astype(np.float32), loss=mn.mse, times=1.0)
    with pytest.raises(ValueError, match=r"x expects at least one example, got none"):
        mn.flow(NET, THETA, X[:0], Y[:0], loss=mn.mse, times=1.0)
    with pytest.raises(ValueError, match=r"kernel expects shape \(\[E\], 6, 6\), .* got \(6, 5\)"):
        mn.kernel_flow(np.ones((6, 5)), np.zeros((6, 1)), Y, loss=mn.mse, times=1.0)
    with pytest.raises(ValueError, match=r"y expects at least 1 and at most the 5 points of f0"):
        mn.kernel_flow(np.ones((5, 6)), np.zeros((5, 1)), Y, loss=mn.mse, times=1.0)
    with pytest.raises(TypeError, match=r"f0 must have the dtype of the kernel, float64, got float32"):
        mn.kernel_flow(np.eye(6), np.zeros((6, 1), np.float32), Y, loss=mn.mse, times=1.0)


@pytest.mark.parametrize("arguments", [{"low": 1.0, "high": 0.1}, {"low": -1.0}, {"high": inf}, {"high": np.nan}])
def test_steps_that_cannot_be(arguments: Any) -> None:
    with pytest.raises(ValueError, match=r"Steps expects 0 <= low < high, finite, got"):
        replace(mn.Steps(), **arguments)


@pytest.mark.parametrize("early", [0.0, 1.5, np.nan])
def test_a_share_of_time_that_cannot_be(early: float) -> None:
    with pytest.raises(ValueError, match=r"Steps expects 0 < early <= 1, the share of t in a step, got early="):
        mn.Steps(early=early)


@pytest.mark.parametrize("arguments", [{"rtol": 0.0}, {"atol": -1.0}, {"method": "LSODA"}])
def test_solvers_that_cannot_be(arguments: Any) -> None:
    with pytest.raises(ValueError, match=rf"Solver\({next(iter(arguments))}=\.\.\.\) expects"):
        replace(mn.Solver(), **arguments)


def test_rounding_is_told_from_steps_too_long() -> None:
    """With alpha = 1e7 in float32, outputs are rounded to steps of about 1, so no change is as small as 1e-2."""
    theta, x, y = (a.astype(np.float32) for a in (THETA, X, SIGNS))
    model = mn.Centred(NET, theta, 1e7)
    with pytest.raises(
        FloatingPointError,
        match=r"no step changes the outputs by less than 0\.01.*take float64",
    ):
        last(mn.flow(model, theta, x, y, loss=mn.Hinge(1e7), times=100.0))


def test_outputs_that_are_not_finite() -> None:
    net = mn.Network(mn.Dense(1), (1,))
    with pytest.raises(FloatingPointError, match=r"the loss is not finite at t = 0"), np.errstate(over="ignore"):
        next(mn.flow(net, np.array([1e200]), np.array([[1e200]]), np.ones((1, 1)), loss=mn.mse, times=1.0))


def test_exponential_decay_in_the_docstring() -> None:
    """`decay` is exp(-int dt/tau) over a step for constant tau and for tau = t/mu, and 0 without momentum."""
    for tau, mu in ((0.7, None), (None, 3.0), (None, None)):
        settings = FlowSettings(mn.mse, 1.0, tau, mu)
        want = exp(-0.2 / 0.7) if tau else (2.0 / 2.2) ** 3 if mu else 0.0
        assert settings.decay(2.0, 0.2) == pytest.approx(want, rel=1e-12)
