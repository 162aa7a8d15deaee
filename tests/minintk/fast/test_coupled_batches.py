"""A batch that BatchNorm couples, split over the cores: they exchange means, and nobody waits for who is not there."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import pytest
from counting import counted
from small_is_large import small_is_large

import minintk as mn
from minintk.fast import rectified, split_batch, threads
from minintk.fast.door import shut
from minintk.fast.norm import CompiledBatchNorm
from minintk.fast.threads import everyones, together
from minintk.fast.thresholds import THRESHOLDS
from minintk.testing import assert_close, roundings

SPEC = mn.Sequential(
    mn.Conv2d(16, 3), mn.BatchNorm(eps=0.01),
    mn.Residual(mn.Sequential(mn.ReLU(), mn.Conv2d(16, 3), mn.BatchNorm(eps=0.01))),
    mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(3),
)  # fmt: skip
RNG = np.random.default_rng


@pytest.fixture(autouse=True)
def two_cores() -> Iterator[None]:
    pytest.importorskip("numba")
    with small_is_large():
        yield


def maps(net: mn.Network, N: int) -> list[Any]:
    """f, J v, J' u and J' U for several cotangents U."""
    rng = RNG(1)
    theta = net.init(RNG(0))
    f, J = net.linearize(theta, 3 + rng.standard_normal((N, *net.input_shape)))
    u, v = rng.standard_normal((2, *f.shape)), rng.standard_normal(net.size)
    return [f, J.jvp(v), J.vjp(u[0]), J.vjp(u)]


def both(N: int) -> tuple[list[Any], list[Any], float]:
    with shut():
        plain = mn.Network(SPEC, (6, 5, 2))
    tolerance = 50 * roundings(plain, plain.init(RNG(0)), RNG(1).standard_normal((N, 6, 5, 2)))
    return maps(plain, N), maps(mn.Network(SPEC, (6, 5, 2)), N), tolerance


@pytest.mark.parametrize("N", [2, 5, 8])
def test_parts_of_a_batch_have_the_statistics_of_all_of_it(N: int) -> None:
    """Outputs and derivatives are those of the layers as they are written, in parts of any sizes."""
    with counted(split_batch, "together", lambda work, items: len(items)) as shares:
        want, found, tolerance = both(N)
    assert shares == [2] * 4
    for i, (a, b) in enumerate(zip(found, want, strict=True)):
        assert_close(f"map {i}", a, b, tolerance * float(np.abs(b).max()))


def test_a_part_by_loops_meets_one_layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 5 examples 3 are enough work for the loops that normalise what they read, and 2 are not."""
    spec = mn.Sequential(mn.Conv2d(16, 1), mn.BatchNorm(eps=0.01), mn.ReLU(), mn.Conv2d(16, 3), *SPEC.layers[-2:])
    with shut():
        plain = mn.Network(spec, (6, 5, 2))
    tolerance = 50 * roundings(plain, plain.init(RNG(0)), RNG(1).standard_normal((5, 6, 5, 2)))
    with monkeypatch.context() as patch, counted(rectified, "RectifiedJacobian", lambda *_: 1) as calls:
        patch.setattr(THRESHOLDS, "compiled", 3 * (6 * 5 * 9 - 2 * 5 * 3) * 16 * 16)  # less what lies outside
        found = maps(mn.Network(spec, (6, 5, 2)), 5)
    assert len(calls) == 1
    for a, b in zip(found, maps(plain, 5), strict=True):
        assert_close("map", a, b, tolerance * float(np.abs(b).max()))


def test_parts_that_do_not_meet_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: each core with the means of its own examples."""
    monkeypatch.setattr("minintk.fast.norm.everyones", lambda part: [part])
    want, found, tolerance = both(5)
    with pytest.raises(AssertionError):
        assert_close("f", found[0], want[0], tolerance * float(np.abs(want[0]).max()))


def test_where_the_pool_is_taken_the_batch_goes_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the start, or between the outputs and the sweeps: no thread waits for one that never comes."""
    want, _, tolerance = both(5)
    net = mn.Network(SPEC, (6, 5, 2))
    for free in (0, 1):
        left = [free]

        def some(work: Any, items: Any, left: list[int] = left) -> Any:
            left[0] -= 1
            return together(work, items) if left[0] >= 0 else None

        monkeypatch.setattr(split_batch, "together", some)
        for a, b in zip(maps(net, 5), want, strict=True):
            assert_close("map", a, b, tolerance * float(np.abs(b).max()))
    with threads.alone():
        assert together(everyones, range(2)) is None

    def refused(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("concurrent.futures.ThreadPoolExecutor.submit", refused)
        assert together(everyones, range(2)) is None
    assert together(everyones, range(2)) == [[0, 1]] * 2


def test_what_parts_wrote_before_they_failed_to_meet_is_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second part has its last weights' gradient, and then a third thread does not start."""
    net, x = mn.Network(SPEC, (6, 5, 2)), RNG(1).standard_normal((5, 6, 5, 2))
    f, J = net.linearize(net.init(RNG(0)), x)
    right = J.vjp(f)

    def late(work: Any, _: Any) -> None:
        work(1)

    monkeypatch.setattr(split_batch, "together", late)
    np.testing.assert_allclose(J.vjp(f), right, rtol=0, atol=1e-10 * float(np.abs(right).max()))


def test_no_part_waits_for_an_interrupted_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control-C before the caller takes its part: the other part, which waits for it already, is told so."""
    pool, begun, meetings = threads._pool(), list[Any](), list[Any]()
    arrived, submit = threading.Event(), pool.submit

    def part(i: int) -> list[int]:
        meetings.append(threads._inside.meeting[0])
        arrived.set()
        return everyones(i)

    def interrupted(*work: Any) -> Any:
        begun.append(submit(*work))
        assert arrived.wait(10)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pool, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            together(part, range(2))
    try:
        assert isinstance(begun[0].exception(timeout=2), threading.BrokenBarrierError)
    finally:
        meetings[0].barrier.abort()
    assert together(everyones, range(2)) == [[0, 1]] * 2


@pytest.mark.parametrize(("owner", "name"), [(Future, "cancel"), (Future, "__init__"), (threading.Barrier, "wait")])
def test_an_interrupt_waits_until_the_pool_is_as_it_was(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the midst of a hand-over, its end or a meeting, Control-C would leave a lock taken for good."""
    inside, right, main = list[bool](), getattr(owner, name), threading.main_thread()

    def interrupted(self: Any) -> Any:
        if threading.current_thread() is main:
            inside.append(True)
            signal.raise_signal(signal.SIGINT)
            inside.append(False)
        return right(self)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            together(everyones, range(2))
    assert inside[-1] is False
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert together(everyones, range(2)) == [[0, 1]] * 2


def test_as_many_parts_as_there_were_cores_do_not_meet_on_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool has threads for three parts; then the process may use two cores."""
    with monkeypatch.context() as patch:
        patch.setattr(threads, "cores", lambda: 3)
        threads._pool.cache_clear()
        assert together(everyones, range(3)) == [[0, 1, 2]] * 3
    patient = partial(threading.Barrier, timeout=1)
    monkeypatch.setattr(threads, "Barrier", patient)
    with counted(threads, "parallel", lambda *_: 1) as calls:
        assert together(everyones, range(3)) is None
    assert not calls


def test_statistics_are_left_for_a_calibrated_network() -> None:
    """Those of the whole batch, once; and masks, which go by an example's place in the batch, keep it in one piece."""
    net, x = mn.Network(SPEC, (6, 5, 2)), RNG(1).standard_normal((6, 6, 5, 2))
    theta = net.init(RNG(0))
    np.testing.assert_allclose(net.calibrate(theta, x)(theta, x), net(theta, x), rtol=1e-12)
    masked = mn.Network(mn.Sequential(mn.Dropout(0.5), *SPEC.layers), (6, 5, 2)).with_dropout(RNG(2))
    assert not any(isinstance(layer, split_batch.SplitBatch) for layer in masked.sweeps.layers)  # type: ignore[attr-defined]


def test_an_error_in_one_part_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others stop waiting, and the next batch finds the pool as it was."""
    net, x = mn.Network(SPEC, (6, 5, 2)), RNG(1).standard_normal((6, 6, 5, 2))
    right = CompiledBatchNorm.__call__

    def wrong(self: Any, w: Any, x: Any) -> Any:
        if threading.current_thread().name.startswith("minintk"):
            raise MemoryError("no memory for this part")
        return right(self, w, x)

    with monkeypatch.context() as patch:
        patch.setattr(CompiledBatchNorm, "__call__", wrong)
        with pytest.raises(MemoryError, match="this part"):
            net(net.init(RNG(0)), x)
    assert np.isfinite(net(net.init(RNG(0)), x)).all()
    assert not threads.inside()
