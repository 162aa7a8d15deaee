"""Compare the kernel along a run with dense Jacobians. A linearised network serves as a control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.arrays import to_library
from minintk.diagnostics import KernelPath, kernel_over_time
from tests.kit.arrays_under_test import LIBRARIES, namespace

Array = np.ndarray[Any, Any]
SPEC = mn.Sequential(mn.Dense(6, b_std=0.3), mn.Tanh(), mn.Residual(mn.Sequential(mn.Dense(6), mn.ReLU())), mn.Dense(2))
NET = mn.Network(SPEC, (3,))
LAYERS = ["0", "2.branch.0", "3"]
N, K = 7, 3


@dataclass
class Point:
    t: float
    theta: Any


def run(ensemble: int | None = None) -> tuple[list[Point], Array, Array]:
    """Return (points, x, y): four points of an artificial run with large steps, inputs (N, 3) and targets (N, 2)."""
    rng = np.random.default_rng(3)
    theta = NET.init(rng, ensemble=ensemble)
    points = [Point(float(i), theta + 0.3 * i * rng.standard_normal(theta.shape)) for i in range(4)]
    return points, rng.standard_normal((N, 3)), rng.standard_normal((N, 2))


def by_dense_jacobians(points: list[Point], x: Array, y: Array, net: mn.Network = NET) -> list[dict[str, Any]]:
    """Return all quantities of one network's path, computed from the dense matrix J S^1/2."""
    found, first, S = [], None, net.layout.learning_rate_scales()
    H = np.eye(N) - 1 / N
    for point in points:
        J = net.linearize(point.theta, x)[1].dense() * (1 if S is None else S**0.5)
        theta = np.einsum("ncp,mcp->nm", J, J) / 2
        values, vectors = np.linalg.eigh(theta)
        values, vectors = values[::-1], vectors[:, ::-1]
        first = first or (theta, vectors)
        p = values[values > 0] / values.sum()
        a, b = H @ theta @ H, H @ y @ y.T @ H
        traces = {
            layer: sum((J[..., at] ** 2).sum() for name, at in NET.layout.slices.items() if name.startswith(layer))
            for layer in LAYERS
        }
        found.append(
            {
                "movement": np.linalg.norm(theta - first[0]) / np.linalg.norm(first[0]),
                "alignment": (a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b),
                "effective_rank": np.exp(-(p * np.log(p)).sum()),
                "eigenvalues": values[:K],
                "overlap": [np.linalg.norm(first[1][:, :j].T @ vectors[:, :j]) ** 2 / j for j in range(1, K + 1)],
                "share": {layer: trace / sum(traces.values()) for layer, trace in traces.items()},
            }
        )
    return found


def check(path: KernelPath, truth: list[dict[str, Any]], member: int | None = None) -> None:
    """Check that the path of a network, or of one member of an ensemble, is correct up to rounding."""
    for name in truth[0]:
        if name != "share":
            values = getattr(path, name)
            values = values if member is None else values[:, member]
            np.testing.assert_allclose(values, [row[name] for row in truth], rtol=1e-9, atol=1e-12, err_msg=name)
    assert list(path.share) == LAYERS
    for layer, share in path.share.items():
        share = share if member is None else share[:, member]
        np.testing.assert_allclose(share, [row["share"][layer] for row in truth], rtol=1e-10)


@pytest.mark.parametrize("library", LIBRARIES)
def test_path_is_that_of_dense_jacobians(library: str) -> None:
    points, x, y = run()
    xp = namespace(library)
    there = [Point(p.t, to_library(p.theta, xp)) for p in points]
    path = kernel_over_time(NET, iter(there), to_library(x, xp), to_library(y, xp), k=K)
    check(path, by_dense_jacobians(points, x, y))
    assert path.t.tolist() == [0, 1, 2, 3]
    assert repr(path).startswith("KernelPath(4 times up to t=3, movement ")


def test_members_are_measured_apart() -> None:
    points, x, y = run(3)
    path = kernel_over_time(NET, points, x, y, k=K)
    assert path.movement.shape == (4, 3)
    assert path.overlap.shape == path.eigenvalues.shape == (4, 3, K)
    for e in range(3):
        check(path, by_dense_jacobians([Point(p.t, p.theta[e]) for p in points], x, y), e)
    with pytest.raises(AssertionError, match="movement"):  # another member's path fails
        check(path, by_dense_jacobians([Point(p.t, p.theta[0]) for p in points], x, y), 1)


def test_shares_are_those_of_the_kernel_in_every_parametrization() -> None:
    points, x, y = run()
    for parametrization in (mn.Standard(), mn.SpectralMuP(), mn.MeanField()):
        net = mn.Network(SPEC, (3,), parametrization)
        check(kernel_over_time(net, points, x, y, k=K), by_dense_jacobians(points, x, y, net))


def test_a_linearised_network_stands_still_and_the_network_does_not() -> None:
    points, x, y = run()
    theta0 = points[0].theta
    lazy = kernel_over_time(mn.Linearized(NET, theta0), points, x, y)
    assert lazy.eigenvalues.shape == lazy.overlap.shape == (4, 5)  # five eigenvectors by default
    assert np.all(lazy.movement == 0)
    np.testing.assert_allclose(lazy.overlap, 1, rtol=1e-12)
    moved = kernel_over_time(NET, points, x, y, k=K)
    assert moved.movement[0] == 0 < moved.movement[1:].min()
    assert moved.overlap[1:, 0].max() < 0.999


def test_runs_of_train_and_flow_and_of_a_model_that_re_anchors() -> None:
    points, x, y = run()
    theta0 = points[0].theta
    how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(0.3), "steps": 4, "every": 2}
    trained = kernel_over_time(NET, mn.train(NET, theta0, x, y, **how), x, y, k=K)
    assert trained.t == pytest.approx([0, 0.6, 1.2])
    flowed = kernel_over_time(NET, mn.flow(NET, theta0, x, y, loss=mn.mse, times=[0.6, 1.2]), x, y, k=K)
    assert flowed.t[-1] == 1.2
    assert flowed.movement[-1] == pytest.approx(trained.movement[-1], rel=0.5)  # steps of .3 only approximate the flow
    anchored = mn.IterativelyLinearized(NET, theta0, every=2)
    path = kernel_over_time(anchored, mn.train(anchored, theta0, x, y, **how), x, y, k=K)
    assert path.movement[0] == 0 < path.movement[1] < path.movement[2]


def test_what_is_no_run_is_refused() -> None:
    points, x, y = run()
    frozen = mn.kernel_flow(np.eye(N), np.zeros((N, 2)), y, loss=mn.mse, times=1.0)
    with pytest.raises(TypeError, match="kernel_flow does not move"):
        kernel_over_time(NET, frozen, x, y)
    with pytest.raises(ValueError, match="at least one snapshot"):
        kernel_over_time(NET, [], x, y)
    with pytest.raises(ValueError, match="k expects a whole number from 1 to 7, got 8"):
        kernel_over_time(NET, points, x, y, k=8)
    with pytest.raises(ValueError, match="y expects shape"):
        kernel_over_time(NET, points, x, y[:3])


@pytest.mark.parametrize(("dtype", "scales"), [(np.float32, (1e-30, 1e30)), (np.float64, (1e-300, 1e300))])
def test_diagnostics_of_kernels_do_not_depend_on_units(dtype: Any, scales: tuple[float, float]) -> None:
    """Scaling a kernel does not change its diagnostics, even if squares of the scaled entries overflow or underflow."""
    a = np.random.default_rng(0).standard_normal((2, 30, 9)).astype(dtype)
    k = (a @ np.swapaxes(a, -1, -2)).astype(dtype)
    y = np.ones((30, 1), dtype=dtype)
    y[::2] = -1
    for scale in np.array(scales, dtype):
        for centred in (False, True):
            want = mn.diagnostics.alignment(k, k[::-1], centred=centred)
            np.testing.assert_allclose(mn.diagnostics.alignment(scale * k, k[::-1], centred=centred), want, rtol=1e-5)
            want = mn.diagnostics.target_alignment(k, y, centred=centred)
            np.testing.assert_allclose(mn.diagnostics.target_alignment(scale * k, y, centred=centred), want, rtol=1e-5)
        want = mn.diagnostics.effective_rank(k)
        np.testing.assert_allclose(mn.diagnostics.effective_rank(scale * k), want, rtol=1e-4)
    top = np.finfo(dtype).max
    assert mn.diagnostics.effective_rank(np.eye(30, dtype=dtype) * top) == pytest.approx(30)
