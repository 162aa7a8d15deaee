"""Test the layers of a network in one piece: BLAS uses one thread, whatever is asked of them."""

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
    """In outputs, sweeps, kernels and flows; BLAS's own threads spin, and wait ten times as long on a busy machine.

    With the door shut the layers run as they are written, and leave BLAS alone: the same test, refused.
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
        assert blas_threads() == {2}  # the caller's own limit stands again
        assert seen == ({2} if closed else {1})
        with blas_at(1):
            net(theta, x)
            assert blas_threads() == {1}
