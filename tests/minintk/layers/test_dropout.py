"""Test dropout in finite networks: laws with and without masks, the drawing of masks, and training with masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.testing import check_layer, check_model
from tests.kit.montecarlo import assert_mean

SPEC = mn.Sequential(mn.Dense(6, b_std=0.3), mn.Tanh(), mn.Dropout(0.4), mn.Dense(5), mn.Dropout(0.2), mn.Dense(2))
NET = mn.Network(SPEC, (3,))
X, Y = np.random.default_rng(0).standard_normal((8, 3)), np.random.default_rng(1).standard_normal((8, 2))
HOW: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(0.2, momentum=0.5)}


def test_every_law_without_masks_and_with_them() -> None:
    check_layer(mn.Dropout(0.3), (3,))
    check_layer(mn.Dropout(0.3), (4, 3, 2))
    rng = np.random.default_rng(2)
    theta = NET.init(rng, ensemble=2)
    check_model(NET.with_dropout(rng), theta[0], X, rng)
    check_model(NET.with_dropout(rng, ensemble=2), theta, X, rng)
    assert np.array_equal(
        NET(theta, X), mn.Network(mn.Sequential(*SPEC.layers[:2], SPEC.layers[3], SPEC.layers[5]), (3,))(theta, X)
    )


def test_masks_average_to_one_and_are_those_of_their_key() -> None:
    """Masks are drawn independently for each step, layer and example. Equal keys give equal masks."""
    spec = mn.Sequential(mn.Dropout(0.25), mn.Concat(mn.Dropout(0.25), mn.Identity()))
    net, theta, x = mn.Network(spec, (50,)), np.zeros(0), np.ones((100, 50))
    draws, model = [], net.with_dropout(np.random.default_rng(0))
    for _ in range(40):
        assert np.array_equal(model(theta, x), model(theta, x))
        draws.append(model(theta, x))
        model = model.advance(theta)
    twice, once = np.split(np.stack(draws), 2, axis=-1)
    assert set(np.unique(once)) == {0.0, 4 / 3}
    assert_mean("E m = 1", once.mean(axis=2), np.ones(100))
    assert_mean("E m m' = 1, of two layers", (twice).mean(axis=2), np.ones(100))
    assert_mean("E m^2 = 1 / (1 - rate)", (once**2).mean(axis=2), np.full(100, 4 / 3))
    assert_mean("E m m' = 1, of two examples", (once[:, :50] * once[:, 50:]).mean(axis=2), np.ones(50))
    assert_mean("E m m' = 1, of two steps", (once[::2] * once[1::2]).mean(axis=2), np.ones(100))
    with pytest.raises(AssertionError, match="z = "):
        assert_mean("no factor", 0.75 * once.mean(axis=2), np.ones(100))


def test_a_run_is_repeated_resumed_and_cut_by_members_with_the_same_masks(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    theta = NET.init(rng, ensemble=3)
    model = NET.with_dropout(rng, ensemble=3)
    snaps = list(mn.train(model, theta, X, Y, **HOW, steps=6))
    *_, again = mn.train(model, theta, X, Y, **HOW, steps=6, resume=snaps[3].state)
    assert np.array_equal(again.theta, snaps[-1].theta)
    *_, alone = mn.train(model.members(slice(1, 2)), theta[1:2], X, Y, **HOW, steps=6)
    np.testing.assert_allclose(alone.theta[0], snaps[-1].theta[1], rtol=1e-12)
    assert not np.allclose(snaps[0].f[0], NET(theta, X)[0])
    for steps in (3, 6):
        run = mn.fit(model, theta, X, Y, **HOW, steps=steps, checkpoint=tmp_path, test=(X, Y))
    assert np.array_equal(run.theta, snaps[-1].theta)
    np.testing.assert_allclose(run.history.last["test_loss"], mn.mse(NET(run.theta, X), Y), rtol=1e-12)  # no masks


@pytest.mark.parametrize("N", [16, 2048])
@pytest.mark.parametrize("keys", [None, 8])
def test_an_ensemble_behind_frozen_batchnorm_keeps_its_masks(N: int, keys: int | None) -> None:
    """With 2,048 examples, members train in several slices. Slices of frozen networks must keep their masks."""
    spec = mn.Sequential(mn.Dense(64), mn.BatchNorm(), mn.ReLU(), mn.Dropout(0.5), mn.Dense(1))
    net, rng = mn.Network(spec, (8,)), np.random.default_rng(0)
    x, y, theta = rng.standard_normal((N, 8)), np.ones((N, 1)), net.init(rng, ensemble=8)
    frozen = net.calibrate(theta, x)
    masked = frozen.with_dropout(rng, ensemble=keys)
    found, _ = mn.train(masked, theta, x, y, loss=mn.mse, optimizer=mn.SGD(0.1), steps=1)
    np.testing.assert_allclose(found.f, masked(theta, x), rtol=1e-9, atol=1e-12)
    assert np.abs(found.f - frozen(theta, x)).max() > 0.1
    part = masked.members(slice(2, 5))
    np.testing.assert_allclose(part(theta[2:5], x), masked(theta, x)[2:5], rtol=1e-9, atol=1e-12)


def test_test_outputs_of_a_frozen_network_keep_its_statistics(tmp_path: Path) -> None:
    spec = mn.Sequential(mn.Dense(6), mn.BatchNorm(), mn.Tanh(), mn.Dropout(0.5), mn.Dense(2))
    net, rng = mn.Network(spec, (3,)), np.random.default_rng(0)
    theta = net.init(rng)
    frozen = net.calibrate(theta, 3 * X)
    run = mn.fit(frozen.with_dropout(rng), theta, X, Y, **HOW, steps=2, test=(X, Y))
    np.testing.assert_allclose(run.history.last["test_loss"], mn.mse(frozen(run.theta, X), Y), rtol=1e-12)


def test_a_centred_network_is_zero_at_the_start_with_every_mask() -> None:
    """Both f(theta) and f(theta_0) have the current masks."""
    theta = NET.init(np.random.default_rng(0))
    model: mn.models.model.Model = mn.Centred(NET.with_dropout(np.random.default_rng(0)), theta, 10.0)
    first = model(2 * theta, X)
    for _ in range(3):
        model = model.advance(theta)
        assert not np.any(model(theta, X))
    assert not np.allclose(model(2 * theta, X), first)


def test_a_resumed_centred_network_has_the_masks_of_the_run() -> None:
    theta, how = NET.init(np.random.default_rng(0)), HOW | {"steps": 6}

    def model() -> Any:
        return mn.Centred(NET.with_dropout(np.random.default_rng(0)), theta, 2.0)

    whole = list(mn.train(model(), theta, X, Y, **how))
    *_, last = mn.train(model(), theta, X, Y, resume=whole[3].state, **how)
    assert np.array_equal(last.theta, whole[-1].theta)


def test_what_is_refused() -> None:
    theta, masked = NET.init(np.random.default_rng(0)), NET.with_dropout(np.random.default_rng(0), ensemble=2)
    with pytest.raises(ValueError, match=r"with_dropout\(rng, ensemble=E\)"):
        masked(theta, X)
    with pytest.raises(ValueError, match="nor has one with masks"):
        mn.ntk(NET.with_dropout(np.random.default_rng(0)), theta, X)
    with pytest.raises(TypeError, match="with_dropout expects"):
        NET.with_dropout(0)  # type: ignore[arg-type]
    masked = NET.with_dropout(np.random.default_rng(0))
    for model in (masked, mn.Centred(masked, theta, 2.0)):
        with pytest.raises(ValueError, match="masks change with every step"):
            mn.flow(model, theta, X, Y, loss=mn.mse, times=1.0)
    for size in (0, -1, True):
        with pytest.raises(ValueError, match="ensemble expects a whole number >= 1"):
            NET.with_dropout(np.random.default_rng(0), ensemble=size)
    for rate in (-0.1, 1.0):
        with pytest.raises(ValueError, match="Dropout"):
            mn.Dropout(rate)
