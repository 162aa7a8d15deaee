"""Test that vectors are processed in pieces that fit in cache, and that later steps do not overwrite snapshots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.memory import cache_slices
from minintk.thresholds import THRESHOLDS


@pytest.mark.parametrize(("shape", "pieces"), [((10,), 2), ((8,), 1), ((9,), 2), ((2, 10), 3), ((16, 3), 3), ((0,), 0)])
def test_pieces_cover_a_vector_and_are_no_longer_than_they_may(
    shape: tuple[int, ...], pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(THRESHOLDS, "vector_piece", 8)
    found = cache_slices(np.zeros(shape))
    assert [i for at in found for i in range(*at.indices(shape[-1]))] == list(range(shape[-1]))
    assert all(at.stop <= shape[-1] for at in found)
    assert len(found) == pieces


@pytest.mark.parametrize("optimizer", [mn.SGD(0.1, momentum=0.9), mn.Adam(1e-3)], ids=["momentum", "two moments"])
def test_a_large_network_keeps_its_snapshots_apart(optimizer: mn.Optimizer) -> None:
    net = mn.Network(mn.Sequential(mn.Dense(300), mn.ReLU(), mn.Dense(1)), (300,))
    theta, x = net.init(np.random.default_rng(0)), np.random.default_rng(1).standard_normal((4, 300))
    run = mn.train(net, theta, x, x[:, :1], loss=mn.mse, optimizer=optimizer, steps=6)
    kept: list[Any] = []
    sums = []
    for snap in run:
        state: Any = snap.state
        sums.append((state.theta.sum(), state.memory.sum()))
        if snap.step % 2:
            kept.append(snap.state)
    assert [(state.theta.sum(), state.memory.sum()) for state in kept] == sums[1::2]
    assert len(set(sums)) == 7
