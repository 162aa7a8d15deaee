"""Pieces that stay in cache, and copies whose memory is taken again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.memory import Copies, cache_slices
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


def test_memory_of_a_copy_is_taken_again_only_when_nobody_holds_it() -> None:
    """Neither the copy nor a view of a view of it; and what a kept snapshot says stays."""
    copies: Any = Copies()
    a = np.arange(2.0**16).reshape(2, -1)
    kept = copies(a)
    view, place = kept[1:][:, 5:], kept.ctypes.data
    del kept
    assert copies(a).ctypes.data != place
    assert view[0, 0] == a[1, 5]
    del view
    assert copies(a).ctypes.data == place
    assert np.array_equal(copies(a), a)


@pytest.mark.parametrize(("size", "threads"), [(2**18, 1), (2**21, 2)])
def test_only_copies_worth_it_wake_another_thread(size: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that wakes up costs more than a small copy, and on a busy machine thousands of times more."""
    handed: list[int] = []
    monkeypatch.setattr("minintk.memory.parallel", lambda work, items: handed.append(len([*map(work, items)])))
    a = np.arange(float(size))
    assert np.array_equal(Copies()(a), a)
    assert min(handed[0], 2) == threads


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
