"""Test train: snapshots, momentum, weight decay, mini-batches, learning-rate scales, warnings and errors."""

from __future__ import annotations

import warnings
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minintk as mn
from minintk.models.jacobian import NetworkJacobian
from minintk.thresholds import THRESHOLDS
from minintk.training import train as training

Array = mn.Array

SPEC = mn.Sequential(mn.Dense(6, b_std=0.3), mn.Tanh(), mn.Dense(2, b_std=0.1))
NET = mn.Network(SPEC, (3,))
RNG = np.random.default_rng(0)
THETA = NET.init(RNG)
X, Y = RNG.standard_normal((7, 3)), RNG.standard_normal((7, 2))


def go(theta: Array = THETA, x: Array = X, y: Array = Y, model: mn.Model = NET, **changes: Any) -> list[mn.Snapshot]:
    arguments: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(lr=0.1), "steps": 10}
    return list(mn.train(model, theta, x, y, **(arguments | changes)))


def gradient(theta: Array, x: Array = X, y: Array = Y, loss: Any = mn.mse) -> Array:
    f, J = NET.linearize(theta, x)
    return np.asarray(J.vjp(loss.cotangent(f, y)))


# ---------------------------------------------------------------------------------------- snapshots


def test_a_snapshot_is_the_state_before_its_step() -> None:
    snaps = go(optimizer=mn.SGD(lr=0.2), steps=5)
    assert [s.step for s in snaps] == [0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose([s.t for s in snaps], [0, 0.2, 0.4, 0.6, 0.8, 1.0], rtol=1e-15)
    np.testing.assert_array_equal(snaps[0].theta, THETA)
    for s in snaps:
        np.testing.assert_array_equal(s.f, NET(s.theta, X))
        assert s.loss == mn.mse(s.f, Y)
        assert s.model is NET
    for a, b in pairwise(snaps):
        np.testing.assert_allclose(b.theta, a.theta - 0.2 * gradient(a.theta), rtol=1e-14, atol=1e-16)


def test_every_and_the_last_step() -> None:
    full = go(steps=11)
    some = go(steps=11, every=4)
    assert [s.step for s in some] == [0, 4, 8, 11]
    for s in some:
        np.testing.assert_array_equal(s.theta, full[s.step].theta)
    (only,) = go(steps=0)
    assert only.step == 0


def test_the_callers_theta_is_left_alone_and_snapshots_are_copies() -> None:
    theta = THETA.copy()
    run = mn.train(NET, theta, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=0.1, momentum=0.9), steps=3)
    first = next(run)
    first.theta[:] = np.nan  # the caller may overwrite a snapshot
    second = next(run)
    kept = second.theta.copy()
    list(run)
    np.testing.assert_array_equal(theta, THETA)
    np.testing.assert_array_equal(second.theta, kept)
    np.testing.assert_allclose(kept, THETA - 0.1 * gradient(THETA), rtol=1e-14, atol=1e-16)


def test_theta_may_change_between_the_call_and_the_first_step() -> None:
    theta = THETA.copy()
    run = mn.train(NET, theta, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=0.1), steps=0)
    theta += 1
    np.testing.assert_array_equal(next(run).theta, THETA)


# --------------------------------------------------------------------------------------- the algorithm


@given(
    st.sampled_from((0.0, 0.9)),
    st.sampled_from((0.0, 0.05)),
    st.sampled_from((None, {"0.W": 0.5, "2.b": 0.0})),
    st.sampled_from((mn.mse, mn.softmax_cross_entropy)),
    st.sampled_from((None, 3)),
)
def test_train_is_this_loop(
    momentum: float, weight_decay: float, scales: dict[str, float] | None, loss: Any, batch_size: int | None
) -> None:
    """`train` gives the same parameters as the loop below, for the full batch and for mini-batches."""
    y = np.abs(Y) / np.abs(Y).sum(axis=1, keepdims=True)
    optimizer = mn.SGD(lr=0.1, momentum=momentum, weight_decay=weight_decay)
    rng = np.random.default_rng(3) if batch_size else None
    snaps = go(y=y, loss=loss, optimizer=optimizer, lr_scales=scales, batch_size=batch_size, rng=rng, steps=12)

    s = np.concatenate([np.full(t.size, (scales or {}).get(t.name, 1.0)) for t in NET.layout.tensors])
    rng, batches = np.random.default_rng(3), list[Array]()
    while batch_size and len(batches) < 12:
        batches += np.split(rng.permutation(7)[:6], 2)
    theta, v = THETA, np.zeros_like(THETA)
    for step in range(12):
        batch = batches[step] if batch_size else np.arange(7)
        v = momentum * v + s * gradient(theta, X[batch], y[batch], loss) + weight_decay * (s > 0) * theta
        theta = theta - 0.1 * v
        np.testing.assert_allclose(snaps[step + 1].theta, theta, rtol=1e-12, atol=1e-13)


def test_a_frozen_tensor_stays_bit_for_bit() -> None:
    last = go(lr_scales={"0.W": 0.0, "0.b": 0.0}, optimizer=mn.SGD(lr=0.1, momentum=0.9, weight_decay=0.1))[-1]
    before, after = NET.layout.unpack(THETA), NET.layout.unpack(last.theta)
    assert {name for name in before if np.array_equal(before[name], after[name])} == {"0.W", "0.b"}


@given(st.integers(1, 7), st.integers(0, 100))
def test_mini_batches_cover_each_epoch_once(batch_size: int, seed: int) -> None:
    """Within an epoch, no example appears twice, and all but the remainder appear.

    The test recognises examples by their outputs.
    """
    per_epoch = 7 // batch_size
    snaps = go(batch_size=batch_size, rng=np.random.default_rng(seed), steps=3 * per_epoch, optimizer=mn.SGD(lr=1e-300))
    known = NET(THETA, X)
    seen = [int(np.argmin(np.abs(known - row).sum(axis=1))) for snap in snaps[:-1] for row in snap.f]
    epochs = np.array(seen).reshape(3, per_epoch * batch_size)  # lr = 1e-300 moves nothing
    for examples in epochs:
        assert len(examples) == len(set(examples))
    assert (
        len({tuple(examples) for examples in epochs}) > 1
    )  # reshuffled: three equal orders of 4 or more examples are too improbable


def test_the_same_generator_gives_the_same_run() -> None:
    a, b, c = (go(batch_size=3, rng=np.random.default_rng(seed))[-1].theta for seed in (4, 4, 5))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_an_ensemble_cut_into_parts_is_the_same_ensemble(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training gives the same ensemble however its members are distributed over the cores.

    The anchors of anchored models are distributed with the ensemble.
    """
    theta = NET.init(np.random.default_rng(1), ensemble=5)
    models: list[mn.Model] = [
        NET,
        mn.Linearized(NET, theta),
        mn.Centred(mn.IterativelyLinearized(NET, theta, every=3), theta, 2.0),
    ]
    optimizer = mn.SGD(lr=0.05, momentum=0.9, weight_decay=0.01)
    whole = [go(theta, model=model, optimizer=optimizer) for model in models]
    for count in (2, 5):
        cut = [slice(i, i + 5 // count + (count == 2)) for i in range(0, 5, 5 // count + (count == 2))]
        assert len(cut) == count
        monkeypatch.setattr(training, "member_slices", lambda *_, cut=cut: cut)
        for model, snaps in zip(models, whole, strict=True):
            for a, b in zip(go(theta, model=model, optimizer=optimizer), snaps, strict=True):
                np.testing.assert_array_equal(a.theta, b.theta)
                np.testing.assert_array_equal(a.f, b.f)
                np.testing.assert_array_equal(a.loss, b.loss)


def test_large_ensembles_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every member is in exactly one part, in order, and each part fits in the cache."""
    theta = NET.init(np.random.default_rng(1), ensemble=20)
    assert training.member_slices(NET, theta, 7) == [slice(0, 20)]
    monkeypatch.setattr(THRESHOLDS, "ensemble_bytes", 8 * (2 * 7 * NET.footprint[0] + 3 * NET.size) * 3)
    parts = training.member_slices(NET, theta, 7)
    assert [i for part in parts for i in range(20)[part]] == list(range(20))
    assert all(part.stop - part.start <= 3 for part in parts)
    assert training.member_slices(NET, THETA, 7) == [slice(None)]


def test_float32_trains_in_float32() -> None:
    theta, x, y = (a.astype(np.float32) for a in (THETA, X, Y))
    for scales in (None, {"0.W": 0.5}):
        optimizer = mn.SGD(lr=0.1, momentum=0.9, weight_decay=0.01)
        last = go(theta, x, y, optimizer=optimizer, lr_scales=scales)[-1]
        assert {a.dtype for a in (last.theta, last.f, last.loss)} == {np.dtype(np.float32)}


def test_it_learns() -> None:
    """A network with more parameters than targets reaches the targets, and the loss falls at every step."""
    net = mn.Network(mn.Sequential(mn.Dense(100, b_std=0.3), mn.Erf(), mn.Dense(2)), (3,))
    losses = [
        float(s.loss) for s in go(net.init(np.random.default_rng(2)), model=net, optimizer=mn.SGD(lr=1.0), steps=2000)
    ]
    assert all(b <= a for a, b in pairwise(losses))
    assert losses[-1] < 1e-4 * losses[0]


# ---------------------------------------------------------------------------------- stability, divergence


def bound(momentum: float = 0.0, scales: dict[str, float] | None = None, model: mn.Model = NET) -> float:
    """Return the stability bound 2 (1 + momentum) N / lambda_max(J S J')."""
    J = model.linearize(THETA, X)[1].dense().reshape(14, -1)
    s = NET.layout.learning_rate_scales(scales)
    return 2 * (1 + momentum) * 7 / float(np.linalg.norm(J * np.sqrt(1.0 if s is None else s), 2)) ** 2


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("scales", [None, {"2.W": 4.0, "0.b": 0.0}])
@pytest.mark.parametrize("alpha", [None, 3.0])
def test_the_warning_comes_above_the_bound_and_only_there(
    momentum: float, scales: dict[str, float] | None, alpha: float | None
) -> None:
    model = NET if alpha is None else mn.Centred(NET, THETA, alpha)
    critical = bound(momentum, scales, model)
    for factor, warned in ((0.5, False), (0.999, False), (1.05, True), (5.0, True)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run = mn.train(
                model, THETA, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=factor * critical, momentum=momentum), steps=1,
                lr_scales=scales,
            )  # fmt: skip
            next(run)
        assert bool(caught) == warned, (factor, [str(w.message) for w in caught])
        if warned:
            words = str(caught[0].message)
            assert "is above the stability bound" in words
            number = float(words.split("bound ")[1].split(":")[0].split(" ")[0])
            assert number == pytest.approx(critical, rel=0.05)
            assert caught[0].filename == __file__  # points at the caller's loop


def test_the_bound_is_where_the_linearised_network_diverges() -> None:
    lin = mn.Linearized(NET, THETA)
    critical = bound()
    below = go(model=lin, optimizer=mn.SGD(lr=0.98 * critical), steps=3000, every=3000)
    assert below[-1].loss < below[0].loss
    with pytest.warns(RuntimeWarning, match="stability bound"):
        above = go(model=lin, optimizer=mn.SGD(lr=1.05 * critical), steps=400, every=400)
    assert above[-1].loss > 1e6 * above[0].loss


def test_the_check_costs_little_below_half_the_bound_and_no_accuracy_above(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check computes three products with the kernel for rates below half the bound, and eight for higher rates."""
    products, critical = 0, bound()
    pull = NetworkJacobian.pull

    def counted(self: NetworkJacobian, u: Array, out: Array) -> None:
        nonlocal products
        products += 1
        pull(self, u, out)

    monkeypatch.setattr(NetworkJacobian, "pull", counted)
    for factor, count in ((0.4, 3), (0.6, 8)):
        products = 0
        next(mn.train(NET, THETA, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=factor * critical), steps=0))
        assert products == count


def end_of_batches(lr: float, momentum: float, b: int) -> tuple[float, list[str]]:
    """Return (final loss / initial loss, warnings) of the linearised network, for batches of `b` out of 48 examples."""
    data = mn.datasets.digits().subset(48, np.random.default_rng(0))
    x, y = data.parity()
    net = mn.Network(mn.Sequential(mn.Dense(24, b_std=0.3), mn.Tanh(), mn.Dense(1)), x.shape[1:])
    theta = net.init(np.random.default_rng(1))
    how: dict[str, Any] = {"loss": mn.mse, "batch_size": b, "rng": np.random.default_rng(2), "steps": 1000}
    lin, grown = mn.Linearized(net, theta), np.inf
    with warnings.catch_warnings(record=True) as caught, suppress(FloatingPointError):
        warnings.simplefilter("always")
        *_, end = mn.train(lin, theta, x, y, optimizer=mn.SGD(lr, momentum), every=1000, **how)
        grown = float(mn.mse(lin(end.theta, x), y) / mn.mse(net(theta, x), y))
    return grown, [str(w.message) for w in caught]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("b", [1, 4, 16])
def test_the_bound_of_mini_batches_is_near_where_they_diverge(momentum: float, b: int) -> None:
    """At half the bound, training converges without a warning. At three times the bound, it diverges with one."""
    _, (words,) = end_of_batches(1e3, momentum, b)
    critical = float(words.split("bound ")[1].split(":")[0])
    assert f"that of mini-batches of {b}, from one of" in words
    grown, said = end_of_batches(critical / 2, momentum, b)
    assert (grown < 1, said) == (True, [])
    grown, said = end_of_batches(3 * critical, momentum, b)
    assert grown > 1e3
    assert len(said) == 1
    assert "stability bound" in said[0]


def test_momentum_and_small_batches_diverge_far_below_the_bound_of_full_batches() -> None:
    """Single-example batches diverge at a third of the full-batch bound, so the bound must depend on batch size."""
    rates = [float(end_of_batches(1e3, 0.9, b)[1][0].split("bound ")[1].split(":")[0]) for b in (1, 16, 48)]
    assert rates[0] < rates[2] / 20
    assert rates[0] < rates[1] < rates[2]
    assert end_of_batches(rates[2] / 3, 0.9, 1)[0] > 1e3


def test_no_run_diverges_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the stability bound is unknown or wrong, `train` still warns when the loss has grown 1000-fold."""
    y = np.abs(Y) / np.abs(Y).sum(axis=1, keepdims=True)
    with pytest.warns(
        RuntimeWarning, match=r"the loss has grown 1000-fold, to .* at step \d+: training diverges"
    ) as found:
        go(y=y, loss=mn.softmax_cross_entropy, optimizer=mn.SGD(lr=1e6), steps=5)
    assert len(found) == 1
    assert found[0].filename == __file__
    monkeypatch.setattr("minintk.training.train._inverse_rate", lambda *arguments: 0.0)
    with pytest.warns(RuntimeWarning, match="the loss has grown 1000-fold"):
        go(model=mn.Linearized(NET, THETA), optimizer=mn.SGD(lr=1.2 * bound()), steps=200, every=200)


def test_a_loss_that_grows_from_nothing_does_not_diverge() -> None:
    """`train` does not warn if weight decay makes the loss grow from zero to at most the loss at f = 0."""
    losses = [float(snap.loss) for snap in go(y=NET(THETA, X), optimizer=mn.SGD(lr=0.1, weight_decay=0.5), steps=30)]
    assert losses[0] < 1e-20
    assert losses[-1] > 1e-3


@pytest.mark.parametrize(
    "options", [{"loss": mn.softmax_cross_entropy}, {"batch_size": 3, "rng": np.random.default_rng(0)}]
)
def test_no_warning_where_the_bound_says_nothing(options: dict[str, Any]) -> None:
    y = np.abs(Y) / np.abs(Y).sum(axis=1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        go(y=y, optimizer=mn.SGD(lr=1.5 * bound()), steps=1, **options)


@pytest.mark.parametrize(
    "x", [np.array([[1.0], [-1.0]]), np.zeros((2, 1))], ids=["outputs sum to zero", "no weight moves the outputs"]
)
def test_the_stability_check_survives_degenerate_kernels(x: Array) -> None:
    """Degenerate kernels cause no NaNs, and they cause warnings only for rates above the bound."""
    net = mn.Network(mn.Dense(1), (1,))
    theta = net.init(np.random.default_rng(0))
    snaps = go(theta, x, np.ones((2, 1)), model=mn.Centred(net, theta, 1.0), optimizer=mn.SGD(lr=0.1))
    assert np.isfinite(snaps[-1].loss)
    if x.any():
        with pytest.warns(RuntimeWarning, match=r"bound 2:"):  # lambda_max = 2, N = 2
            go(theta, x, np.ones((2, 1)), model=mn.Centred(net, theta, 1.0), optimizer=mn.SGD(lr=2.1), steps=1)


def test_divergence_is_an_error_that_says_when_and_what_to_do() -> None:
    with (
        pytest.warns(RuntimeWarning, match="stability bound"),
        pytest.raises(FloatingPointError, match=r"no longer finite at step \d+; choose a learning rate below 1000"),
    ):
        go(optimizer=mn.SGD(lr=1000.0), steps=10_000)


def test_divergence_names_the_members() -> None:
    theta = np.stack([THETA, 1e160 * THETA, THETA])
    with pytest.raises(FloatingPointError, match=r"the loss \(member 1\) is no longer finite at step 0"):
        go(theta, optimizer=mn.SGD(lr=0.01), steps=3)


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"theta": THETA.astype(int)}, TypeError, r"theta expects float32 or float64, got int64"),
        ({"theta": THETA.astype(np.float32)}, TypeError, r"one dtype, got float32 and float64"),
        ({"theta": THETA[:-1]}, ValueError, r"theta expects shape \(38,\) or \(E, 38\), got \(37,\)"),
        ({"theta": np.full_like(THETA, np.nan)}, ValueError, r"theta holds 38 values that are NaN"),
        ({"x": X[:, :2]}, ValueError, r"x expects shape \(N, 3\), got \(7, 2\)"),
        ({"x": X * np.inf}, ValueError, r"x holds 21 values that are NaN or infinite"),
        ({"x": X[:0], "y": Y[:0]}, ValueError, r"x expects at least one example, got none"),
        ({"y": Y[:, 0]}, ValueError, r"y expects shape \(N, C\) = \(7, 2\), got \(7,\)"),
        ({"y": Y[:5]}, ValueError, r"y expects shape \(N, C\) = \(7, 2\), got \(5, 2\)"),
        ({"y": Y.astype(int)}, TypeError, r"y expects float32 or float64, got int64"),
        ({"y": Y.astype(np.float32)}, TypeError, r"y must have the dtype of theta, float64, got float32"),
        ({"y": Y * np.nan}, ValueError, r"y holds 14 values that are NaN"),
        ({"y": Y.tolist()}, TypeError, r"expected arrays of one library.*builtins\.list"),
        ({"model": SPEC}, TypeError, r"expected a model such as mn\.Network\(spec, x\.shape\[1:\]\), got Sequential"),
        ({"loss": "mse"}, TypeError, r"loss expects a loss such as mn\.mse or mn\.softmax_cross_entropy, got 'mse'"),
        ({"loss": mn.softmax_cross_entropy}, ValueError, r"probability distribution"),
        ({"optimizer": 0.1}, TypeError, r"optimizer expects an optimiser such as mn\.SGD\(lr=0\.1\), got 0\.1"),
        ({"steps": -1}, ValueError, r"steps expects a whole number >= 0, got -1"),
        ({"steps": 2.5}, ValueError, r"steps expects a whole number >= 0, got 2\.5"),
        ({"every": 0}, ValueError, r"every expects a whole number >= 1, got 0"),
        ({"batch_size": 0}, ValueError, r"batch_size expects a whole number from 1 to 7, got 0"),
        ({"batch_size": 8, "rng": RNG}, ValueError, r"batch_size expects a whole number from 1 to 7, got 8"),
        ({"batch_size": 3}, TypeError, r"rng, .* expects a .*Generator, numpy\.random\.default_rng\(0\), got None"),
        ({"batch_size": 3, "rng": 0}, TypeError, r"rng, of mini-batches .* expects a .*Generator, .*, got 0"),
        ({"lr_scales": {"1.W": 0.0}}, ValueError, r"lr_scales names unknown tensors \['1\.W'\]; this layout has"),
        ({"lr_scales": {"0.W": -1.0}}, ValueError, r"lr_scales\[.0\.W.\] expects a finite number >= 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_input_is_refused_by_the_call_itself(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    """`train` raises errors for invalid input in the call itself, before the first iteration."""
    arguments: dict[str, Any] = {"model": NET, "theta": THETA, "x": X, "y": Y} | changes
    options: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(lr=0.1), "steps": 1}
    options |= {name: value for name, value in changes.items() if name not in ("model", "theta", "x", "y")}
    with pytest.raises(error, match=words):
        mn.train(arguments["model"], arguments["theta"], arguments["x"], arguments["y"], **options)


def test_a_column_of_targets_is_asked_for() -> None:
    net = mn.Network(mn.Dense(1), (3,))
    with pytest.raises(ValueError, match=r"a single output needs a column, y\[:, None\]"):
        go(net.init(np.random.default_rng(0)), y=Y[:, 0], model=net)
