"""Test that networks with fast paths use one BLAS thread in every computation, then restore the caller's limit."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.fast.accelerate import shut
from minintk.layers.activation import ActivationJacobian, BoundActivation
from tests.minintk.test_threads import blas_at, blas_threads


@pytest.mark.parametrize("closed", [False, True], ids=["open", "shut"])
def test_a_network_takes_one_blas_thread(closed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, sweeps, kernels and flows use one BLAS thread.

    BLAS's own threads spin while they wait, so a step would take 3 times as long on a busy machine if BLAS used several
    threads. As a control, networks without fast paths do not limit BLAS.
    """
    seen: set[int] = set()

    def spied(right: Any) -> Any:
        def spy(*arrays: Any) -> Any:
            seen.update(blas_threads())
            return right(*arrays)

        return spy

    for kind, name in ((BoundActivation, "__call__"), (ActivationJacobian, "jvp"), (ActivationJacobian, "vjp")):
        monkeypatch.setattr(kind, name, spied(getattr(kind, name)))
    with shut() if closed else nullcontext():
        net = mn.Network(mn.Sequential(mn.Dense(5), mn.ReLU(), mn.Dense(2)), (3,))
    theta, x, y = net.init(np.random.default_rng(0)), np.eye(3), np.eye(3)[:, :2]
    with blas_at(2):
        f, J = net.linearize(theta, x)
        J.jvp(theta), J.vjp(f), mn.ntk(net, theta, x)
        list(mn.flow(net, theta, x, y, loss=mn.mse, times=[0.1]))
        assert blas_threads() == {2}  # the caller's own limit is restored
        assert seen == ({2} if closed else {1})
        with blas_at(1):
            net(theta, x)
            assert blas_threads() == {1}
