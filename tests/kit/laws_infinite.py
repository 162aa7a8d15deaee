"""Define laws of infinite-width kernels and of closed-form training, which must fail on planted errors.

As in `laws`, a failing law raises AssertionError with the values that differ.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import analytic as an
import analytic.training.dynamics
import analytic.training.gp
import minintk as mn
from minintk.testing import assert_close
from tests.kit.laws import X, Y, points
from tests.kit.montecarlo import assert_mean, kernels


def monte_carlo(*layers: mn.spec.Layer) -> Callable[[], None]:
    """E hatK = K, E hatTh = Th"""
    spec = mn.Sequential(*layers)

    def law() -> None:
        truth = an.kernel(spec).both(X[:3])
        for name, samples, k in zip(("NNGP", "NTK"), kernels(spec, X[:3], 4000), truth, strict=True):
            assert_mean(f"mean {name}", samples, k[np.triu_indices(3)])

    law.__doc__ = monte_carlo.__doc__
    return law


relu_kernel = monte_carlo(mn.Dense(32, w_std=1.4, b_std=0.6), mn.ReLU(), mn.Dense(16, w_std=1.4))
erf_kernel = monte_carlo(mn.Dense(32, w_std=1.4), mn.Erf(), mn.Dense(16))
zero_bias_kernel = monte_carlo(mn.Dense(32), mn.ReLU(), mn.Dense(16, b_std=1.0, b_init="zeros"))
residual_kernel = monte_carlo(
    mn.Dense(16, b_std=0.3), mn.Residual(mn.Sequential(mn.ReLU(), mn.Dense(16, w_std=1.4))), mn.Dense(16)
)


def closed_form() -> None:
    """train on Linearized = gradient_descent"""
    net, theta = points()[0]
    f0, J = net.linearize(theta, X)
    descent = analytic.training.dynamics.gradient_descent(J.gram(), Y, lr=0.05)
    run = mn.train(mn.Linearized(net, theta), theta, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=0.05), steps=40)
    for snap in run:
        assert_close(f"f after {snap.step} steps", snap.f, descent.predict(snap.step, f0=f0), 1e-11)


def heavy_ball() -> None:
    """train on Linearized with momentum = gradient_descent(momentum=)"""
    net, theta = points()[0]
    f0, J = net.linearize(theta, X)
    descent = analytic.training.dynamics.gradient_descent(J.gram(), Y, lr=0.05, momentum=0.9)
    optimizer = mn.SGD(lr=0.05, momentum=0.9)
    for snap in mn.train(mn.Linearized(net, theta), theta, X, Y, loss=mn.mse, optimizer=optimizer, steps=40):
        assert_close(f"f after {snap.step} steps", snap.f, descent.predict(snap.step, f0=f0), 1e-11)


def flow_limit() -> None:
    """many small steps = gradient_flow"""
    k, y, t, f = X @ X.T + np.eye(5), Y, 2.0, np.zeros_like(Y)
    count = 2**14
    half = [f]
    for steps in (count, 2 * count):
        f = np.zeros_like(Y)
        for _ in range(steps):
            f = f - t / steps / 5 * k @ (f - y)
        half.append(f)
    want = 2 * half[2] - half[1]  # removes the first-order error
    assert_close("f at t = 2", analytic.training.dynamics.gradient_flow(k, y).predict(t), want, 1e-7)


def covariance() -> None:
    """the ensemble's covariance = the prior's covariance propagated by gradient_flow"""
    pushed(analytic.training.dynamics.gradient_flow, {})


def covariance_in_steps() -> None:
    """the ensemble's covariance in steps = the prior's covariance propagated by gradient_descent"""
    pushed(partial(analytic.training.dynamics.gradient_descent, momentum=0.5), {"by": "descent", "momentum": 0.5})


def pushed(dynamics: Callable[..., Any], how: dict[str, Any]) -> None:
    """Check the covariance and the standard deviation at t = 5, after training all layers or only the last layer."""
    kernel = an.kernel(mn.Sequential(mn.Dense(9, w_std=1.4, b_std=0.3), mn.Erf(), mn.Dense(1)))
    x, x_test = X[:3], X[3:]
    trained = analytic.training.gp.ensemble(kernel, x, Y[:3, :1], **how)
    for kind, theta in (("ntk", kernel.ntk), ("nngp", kernel.nngp)):
        one, k = dynamics(theta(x), Y[:3, :1]), theta(x_test, x)
        start = one.predict(5.0, k)
        columns = [one.predict(5.0, k, f0=e[:3], f0_test=e[3:]) - start for e in np.eye(5)[:, :, None]]
        B = np.concatenate(columns, axis=1)
        want = B @ kernel.nngp(np.concatenate([x, x_test])) @ B.T
        _, cov = trained.predict(x_test, t=5.0, kind=kind, cov=True)  # type: ignore[arg-type]
        assert_close(f"covariance at t = 5, {kind}", cov, want, 1e-12)
        _, std = trained.predict(x_test, t=5.0, kind=kind, std=True)  # type: ignore[arg-type]
        assert_close(f"std at t = 5, {kind}", std, np.sqrt(np.diag(want)), 1e-12)
