"""Test that `unlift` returns all weights with torch's or Flax's axes, and BatchNorm statistics of another batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.lifting.slots import flat
from tests.kit import torch_standin
from tests.kit.golden import LIFTED
from tests.kit.lifted import images, inputs, loaded

Host = np.ndarray[Any, Any]


def flax_state(state: dict[str, Host]) -> dict[str, Any]:
    """Return the arrays of `images` in Flax's form: axes (*window, in, out) and features in the order (H, W, C)."""
    nested: dict[str, Any] = {"params": {}, "batch_stats": {}}
    for name, a in state.items():
        layer, _, key = name.rpartition(".")
        if a.ndim > 1:
            a, key = np.moveaxis(a, (0, 1), (-1, -2)), "kernel"
        elif key == "weight":
            key = "scale"
        if layer in ("7", "8") and a.shape[:1] == (40,):  # C, H, W = 5, 2, 4
            a = np.moveaxis(a.reshape(5, 2, 4, *a.shape[1:]), 0, 2).reshape(a.shape)
        if key != "num_batches_tracked":
            where = nested["batch_stats" if key.startswith("running") else "params"]
            where.setdefault(f"layer_{layer}", {})[key.removeprefix("running_")] = a
    return nested


@pytest.mark.parametrize("parametrization", [None, mn.NTK(), mn.SpectralMuP()], ids=repr)
def test_flax_gives_the_same_and_takes_it_back(parametrization: Any) -> None:
    model, state = loaded(images(torch_standin.nn))
    spec, nested = mn.lift(model, (15, 16, 3), check=False)[0].spec, flax_state(state)
    net, theta = mn.lift(nested, (15, 16, 3), spec=spec, layout="flax", parametrization=parametrization)
    f = net(theta, np.moveaxis(inputs((3, 15, 16)), 1, -1).copy())
    assert np.abs(f.ravel() - LIFTED["f"]).max() < 1e-12 * np.abs(LIFTED["f"]).max()
    back = dict(flat(mn.unlift(net, theta, nested, layout="flax")))
    for name, a in flat(nested):
        np.testing.assert_allclose(back[name], a, rtol=1e-15)


def test_the_way_home_gives_every_number_back() -> None:
    model, state = loaded(images(torch_standin.nn), "float32")
    net, theta = mn.lift(model, (15, 16, 3), check=False)
    back = mn.unlift(net, theta, state)
    assert list(back) == list(state)
    assert all(np.array_equal(back[name], a) and back[name].dtype == a.dtype for name, a in state.items())


def test_statistics_of_another_batch_go_home_too() -> None:
    model, state = loaded(images(torch_standin.nn))
    net, theta = mn.lift(model, (15, 16, 3), check=False)
    x = np.moveaxis(inputs((3, 15, 16), 9), 1, -1).copy()
    net = mn.Network(net.spec, (15, 16, 3), mn.PyTorch()).calibrate(theta, x)
    again, same = mn.lift(mn.unlift(net, theta, state), (15, 16, 3), spec=net.spec)
    assert np.array_equal(theta, same)
    np.testing.assert_allclose(again(same, x), net(theta, x), rtol=1e-12)
    with pytest.raises(ValueError, match=r"layer 1: net = net\.calibrate"):
        mn.unlift(mn.Network(net.spec, (15, 16, 3)), theta, state)
