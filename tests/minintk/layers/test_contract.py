"""Test that theta is one vector, and test how theta is split into pieces, assembled and drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import minintk as mn
from minintk.layers.contract import Layout
from tests.kit.strategies import Case, cases


def layout() -> Layout:
    return mn.Network(mn.Sequential(mn.Dense(2, b_std=0.1), mn.ReLU(), mn.Dense(1)), (3,)).layout


@given(cases())
def test_pack_and_unpack_are_inverse(case: Case) -> None:
    pieces = case.net.layout.unpack(case.theta)
    assert np.array_equal(case.net.layout.pack(pieces), case.theta)
    assert sum(t.size for t in case.net.layout.tensors) == case.net.size
    for t in case.net.layout.tensors:
        assert pieces[t.name].shape == (*case.theta.shape[:-1], *t.shape)


@given(cases())
def test_pieces_are_views(case: Case) -> None:
    """Together, the pieces cover every entry of theta exactly once."""
    theta = np.zeros_like(case.theta)
    for piece in case.net.layout.unpack(theta).values():
        piece += 1
    assert np.all(theta == 1)


def test_names_are_positions() -> None:
    spec = mn.Sequential(
        mn.Flatten(),
        mn.Dense(3, b_std=1.0),
        mn.Residual(mn.Sequential(mn.ReLU(), mn.Dense(3)), shortcut=mn.Dense(3, b_std=1.0)),
        mn.Sequential(mn.Sequential(mn.Dense(1))),
    )
    names = [t.name for t in mn.Network(spec, (2, 2)).layout.tensors]
    assert names == ["1.W", "1.b", "2.branch.1.W", "2.shortcut.W", "2.shortcut.b", "3.0.0.W"]


def test_the_first_member_is_the_network_alone_and_float32_the_same_numbers() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(4, b_std=0.1), mn.Dense(2)), (3,), mn.PyTorch())
    one = net.init(np.random.default_rng(5))
    many = net.init(np.random.default_rng(5), ensemble=3)
    half = net.init(np.random.default_rng(5), dtype=np.float32)
    assert one.shape == (net.size,)
    assert many.shape == (3, net.size)
    assert np.array_equal(many[0], one)
    assert not np.any(many[1] == one)
    assert half.dtype == np.float32
    assert np.array_equal(half, one.astype(np.float32))


def test_scales_are_those_of_the_rows_unless_overridden() -> None:
    assert layout().learning_rate_scales() is None
    scales = layout().learning_rate_scales({"0.b": 0.0, "2.W": 2.0})
    assert scales is not None
    assert scales.tolist() == [1.0] * 6 + [0.0] * 2 + [2.0] * 2


def test_wrong_pieces() -> None:
    good = {"0.W": np.ones((3, 2)), "0.b": np.ones(2), "2.W": np.ones((2, 1))}
    assert layout().pack(good).shape == (10,)
    with pytest.raises(ValueError, match=r"missing \['2\.W'\]"):
        layout().pack({name: good[name] for name in ("0.W", "0.b")})
    with pytest.raises(ValueError, match=r"unknown names \['1\.W'\]; this layout has"):
        layout().pack(good | {"1.W": np.ones(3)})
    with pytest.raises(ValueError, match=r"0\.b of shape \(2,\), got \(3,\)"):
        layout().pack(good | {"0.b": np.ones(3)})
    with pytest.raises(ValueError, match=r"0\.b of shape \(4, 2\), got \(5, 2\)"):
        layout().pack({"0.W": np.ones((4, 3, 2)), "0.b": np.ones((5, 2)), "2.W": np.ones((4, 2, 1))})


def test_wrong_theta_and_scales() -> None:
    with pytest.raises(ValueError, match=r"theta expects shape \(\.\.\., 10\), got \(9,\)"):
        layout().unpack(np.ones(9))
    with pytest.raises(
        ValueError, match=r"lr_scales names unknown tensors \['3\.W'\]; this layout has \['0\.W', '0\.b', '2\.W'\]"
    ):
        layout().learning_rate_scales({"3.W": 0.0})
    with pytest.raises(ValueError, match=r"lr_scales\['0\.W'\] expects a finite number >= 0, got -1\.0"):
        layout().learning_rate_scales({"0.W": -1.0})
