"""Test that the three fast convolutions (added, gathered, compiled) give the results of the plain layer."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import minintk as mn
from minintk import testing
from minintk.fast import conv_gram, numba_here, patches
from minintk.fast.accelerate import shut
from minintk.fast.conv import BlockedConv
from minintk.fast.gather import remainders
from minintk.fast.norm import CompiledBatchNorm
from minintk.layers.conv import BoundConv
from minintk.spec.windows import Axis
from minintk.thresholds import THRESHOLDS
from tests.kit.small_is_large import small_is_large
from tests.kit.strategies import PADDINGS, Case, cases, convolutional
from tests.kit.thinned import thinned

Array = mn.Array
RNG = np.random.default_rng

WAYS: dict[str, dict[str, Any]] = {
    "added": {"compiled": 10**15, "gathered_channels": 10**15},
    "gathered": {"compiled": 10**15},
    "compiled": {},
}
"""The thresholds that select each way in small networks, together with `small_is_large`."""


def bound(layer: mn.spec.Layer, shape: tuple[int, ...]) -> BoundConv:
    """Return the bound convolution of `layer`, placed after a 1 x 1 convolution so that it has to compute dx."""
    first: mn.spec.Layer = mn.Conv1d(shape[-1], 1) if len(shape) == 2 else mn.Conv2d(shape[-1], 1)
    conv = mn.Network(mn.Sequential(first, layer, mn.Flatten()), shape).layers.layers[1]
    assert isinstance(conv, BoundConv)
    return conv


def maps(layer: Any, w: Any, dw: Any, x: Array, dx: Array, u: Array) -> list[Array]:
    """Return y, J (dw, dx), and the parts of J' u for the input and each tensor of the weights."""
    y, J = layer(w, x)
    gradient = {name: np.full_like(a, np.nan) for name, a in w.items()}
    return [y, J.jvp(dw, dx), J.vjp(u, gradient), *gradient.values()]


@pytest.mark.parametrize("M", [1, 2, 9])
@pytest.mark.parametrize("compiled", [2**k for k in range(8, 24, 2)])
def test_kernels_of_two_batches_of_unequal_sizes(M: int, compiled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are correct even if only one of the two batches has enough examples for the compiled loop."""
    spec = mn.Sequential(mn.Conv2d(16, 3), mn.ReLU(), mn.Conv2d(16, 3), mn.ReLU(), mn.Flatten(), mn.Dense(2))
    with shut():
        plain = mn.Network(spec, (16, 16, 4))
    theta, x = plain.init(RNG(0)), RNG(1).standard_normal((10, 16, 16, 4))
    monkeypatch.setattr(THRESHOLDS, "compiled", compiled)
    want = mn.ntk_full(plain, theta, x, x[:M])
    for here, there, turned in ((x, x[:M], want), (x[:M], x, want.transpose(2, 3, 0, 1))):
        found = mn.ntk_full(mn.Network(spec, (16, 16, 4)), theta, here, there)
        np.testing.assert_allclose(found, turned, rtol=0, atol=1e-12 * np.abs(want).max())


@pytest.mark.parametrize("N", [1, 2, 9])
@pytest.mark.parametrize("shape", [(16, 16, 3), (4, 4, 16)])
def test_kernels_of_ensembles(N: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """An ensemble's kernels equal its members' kernels, although the first layer's inputs have no ensemble axis."""
    spec = mn.Sequential(mn.Conv2d(16, 3), mn.ReLU(), mn.Conv2d(16, 3), mn.GlobalAvgPool(), mn.Dense(2))
    net = mn.Network(spec, shape)
    theta, x = net.init(RNG(0), ensemble=3), RNG(1).standard_normal((N, *shape))
    monkeypatch.setattr(THRESHOLDS, "compiled", 1)
    for found, x2 in ((mn.ntk(net, theta, x), None), (mn.ntk(net, theta, x, x[:1]), x[:1])):
        want = [mn.ntk(net, member, x, x2) for member in theta]
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-12 * np.abs(want).max())


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=25)
@given(st.data())
def test_a_convolution_by_every_way_is_the_convolution(way: str, data: st.DataObject) -> None:
    """y, J v and J' u equal the plain layer's for random window sizes, strides and paddings, also for ensembles."""
    if way == "compiled":
        pytest.importorskip("numba")
    shape = data.draw(st.sampled_from(((8, 6, 16), (5, 9, 32), (4, 4, 16), (7, 13, 48))))
    kernel, stride = ((data.draw(st.integers(1, n)), data.draw(st.integers(1, n))) for n in (4, 3))
    padding = data.draw(st.sampled_from((*PADDINGS, ((0, 4), (5, 1)))))
    channels = data.draw(st.sampled_from((16, 32, 48)))
    plain = bound(mn.Conv2d(channels, kernel, stride=stride, padding=padding, b_std=0.3), shape)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    lead = data.draw(st.sampled_from(((), (), (2,))))
    w, dw = ({t.name: rng.standard_normal((*lead, *t.shape)) for t in plain.tensors} for _ in range(2))
    x, dx = rng.standard_normal((2, 3, *shape))
    u = rng.standard_normal((*lead, 3, *plain.after))
    want = maps(plain, w, dw, x, dx, u)
    with small_is_large(), pytest.MonkeyPatch.context() as patch:
        for name, value in WAYS[way].items():
            patch.setattr(THRESHOLDS, name, value)
        fast = BlockedConv.of(plain)
        for a, b in zip(maps(fast, w, dw, x, dx, u), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-13 * np.abs(b).max(initial=1) * np.sqrt(b.size))


def test_gradients_of_each_example_and_output_are_compiled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels between two batches are correct. As a control, a loop over only the first image makes them wrong."""
    direct: Any = pytest.importorskip("minintk.fast.numba_loops")
    monkeypatch.setattr("minintk.fast.conv_gram.pairs_are_cheaper", lambda *_: False)
    spec = mn.Sequential(mn.Conv2d(16, 1), mn.Conv2d(32, 3, stride=2, b_std=0.2), mn.Flatten(), mn.Dense(3))
    x, shapes, right = RNG(1).standard_normal((5, 17, 18, 2)), [], direct.add_gradient
    with shut():
        plain = mn.Network(spec, (17, 18, 2))
    theta = plain.init(RNG(0))

    def first(x: Array, *how: Any) -> None:
        right(np.repeat(x[:1], len(x), axis=0), *how)

    def counted(x: Array, *how: Any) -> None:
        shapes.append(how[-1].shape)
        right(x, *how)

    for wrong, loop in ((False, counted), (True, first)):
        monkeypatch.setattr(direct, "add_gradient", loop)
        with small_is_large():
            net = mn.Network(spec, (17, 18, 2))
            for kernel in (mn.ntk, mn.ntk_full):
                want, found = (kernel(one, theta, x, x[:2]) for one in (plain, net))
                assert np.allclose(found, want, rtol=0, atol=1e-12 * np.abs(want).max()) is not wrong
    assert {shape[0] for shape in shapes} == {5, 2}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lead", [(), (2,), (0,)])
def test_cotangents_may_be_several_or_none(way: str, lead: tuple[int, ...]) -> None:
    """J' u for cotangents u : (N, C) or (K, N, C), K = 0 included, equals that of the plain convolution."""
    spec, x = mn.Sequential(mn.Conv2d(16, 3), mn.Conv2d(16, 3, stride=2), mn.Flatten()), np.ones((2, 6, 6, 16))
    with shut():
        plain = mn.Network(spec, (6, 6, 16))
    theta = plain.init(np.random.default_rng(0))
    u = np.random.default_rng(1).standard_normal((*lead, 2, plain.outputs))
    want = plain.linearize(theta, x)[1].vjp(u)
    with small_is_large(), pytest.MonkeyPatch.context() as patch:
        for name, value in WAYS[way].items():
            patch.setattr(THRESHOLDS, name, value)
        found = mn.Network(spec, (6, 6, 16)).linearize(theta, x)[1].vjp(u)
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-12 * np.abs(want).max(initial=1))


@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 4), st.integers(0, 6), st.integers(0, 6))
def test_remainders_are_the_transpose(size: int, kernel: int, stride: int, before: int, after: int) -> None:
    """Every pair of a pixel of x and a window that reads it occurs once, with the correct weight."""
    a = Axis(size, kernel, stride, before, after)
    if a.out < 1:
        return
    read = np.zeros((size, a.out), int)  # 1 + the index of the weight by which window p reads pixel i
    for p in range(a.out):
        for t in range(kernel):
            if 0 <= (i := stride * p + t - before) < size:
                read[i, p] = 1 + t
    found = np.zeros_like(read)
    for pixels, reads, weights, on in remainders(a):
        W = np.arange(1, kernel + 1)[weights]
        assert (on.size, on.kernel, on.out) == (len(range(a.out)[reads]), len(W), len(range(size)[pixels]))
        for row, i in enumerate(range(size)[pixels]):
            for q, weight in enumerate(W):
                if 0 <= (p := row + q - on.before) < on.size:
                    found[i, range(a.out)[reads][p]] += weight
    assert (found == read).all()


@pytest.mark.parametrize("way", WAYS)
def test_float32_is_as_exact_as_the_plain_convolution(way: str) -> None:
    """Relative root mean square errors of y, dx and dW are below 3e-7 or below twice those of the plain layer."""
    if way == "compiled":
        pytest.importorskip("numba")
    plain, rng = bound(mn.Conv2d(32, 3), (16, 16, 16)), np.random.default_rng(0)
    w = {t.name: rng.standard_normal(t.shape) for t in plain.tensors}
    x, u = rng.standard_normal((8, 16, 16, 16)), rng.standard_normal((8, 16, 16, 32))

    def errors(layer: Any) -> list[float]:
        w32 = {name: a.astype(np.float32) for name, a in w.items()}
        x32, u32 = x.astype(np.float32), u.astype(np.float32)
        found = []
        for dtype in (np.float32, np.float64):
            y, J = layer({name: a.astype(dtype) for name, a in w32.items()}, x32.astype(dtype))
            dw = {name: np.empty(a.shape, dtype) for name, a in w.items()}
            found.append([y, J.vjp(u32.astype(dtype), dw), *dw.values()])
        assert all(a.dtype == np.float32 for a in found[0])
        return [float(np.sqrt(np.mean((a - b) ** 2) / np.mean(b**2))) for a, b in zip(*found, strict=True)]

    want = errors(plain)
    with small_is_large(), pytest.MonkeyPatch.context() as patch:
        for name, value in WAYS[way].items():
            patch.setattr(THRESHOLDS, name, value)
        for error, usual in zip(errors(BlockedConv.of(plain)), want, strict=True):
            assert error < max(2 * usual, 3e-7)


def test_sums_of_columns_are_as_exact_as_pairwise_ones() -> None:
    """`column_sums` has less than twice the error of pairwise sums; sequential sums have over 20 times this error."""
    loops: Any = pytest.importorskip("minintk.fast.numba_loops")
    a = np.random.default_rng(0).random((200_000, 8), dtype=np.float32)
    zero, total = np.zeros(8, np.float32), np.zeros((2, 8))
    loops.column_sums(a.ravel(), zero, a.ravel(), zero, np.float32(-1), total)
    exact, in_turn = a.sum(axis=0, dtype=np.float64), np.cumsum(a, axis=0, dtype=np.float32)[-1]
    pairwise = np.array([np.sum(column) for column in np.ascontiguousarray(a.T)])
    off, usual, plain = (np.abs(found / exact - 1).max() for found in (total[0], pairwise, in_turn))
    assert off < 2 * usual
    assert plain > 20 * usual


@pytest.mark.parametrize(("mu", "first"), [(0.0, 0.0), (1e3, 0.0), (0.0, 1e3)])
def test_batch_normalisation_in_few_passes_is_as_exact(mu: float, first: float) -> None:
    """In float32, batch normalisation in few passes has less than twice its error in many passes, or 3e-8 (eps / 4).

    The cases are means near 0, means far from 0, and a first pixel far from the others.
    """
    pytest.importorskip("numba")
    net = mn.Network(mn.Sequential(mn.Conv2d(16, 1), mn.BatchNorm(), mn.Flatten()), (16, 16, 3))
    plain: Any = net.layers.layers[1]
    rng = np.random.default_rng(0)
    x, u = (mu + rng.standard_normal((2, 32, 16, 16, 16))).astype(np.float32)
    x[0, 0, 0] += first

    def errors(layer: Any) -> list[float]:
        found = []
        for dtype in (np.float32, np.float64):
            w: Any = {}
            y, J = layer(w, x.astype(dtype))
            found.append([y, J.vjp(u.astype(dtype), None), J.jvp({}, u.astype(dtype)), *w.values()])
            assert {a.dtype for a in found[-1]} == {np.dtype(dtype)}
        return [float(np.sqrt(np.mean((a - b) ** 2))) for a, b in zip(*found, strict=True)]

    fast = CompiledBatchNorm(plain.name, plain.shape, plain.eps)
    with small_is_large():
        for error, usual in zip(errors(fast), errors(plain), strict=True):
            assert error < 2 * usual + 3e-8
    constant = np.ones((8, 16, 16, 16))
    with pytest.raises(ValueError, match="all equal"), small_is_large():
        replace(fast, eps=0.0)({}, constant)


def test_numba_may_be_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """If Numba is installed but does not load, the library warns, and the results are the same up to rounding."""
    spec = mn.Sequential(mn.Conv2d(16, 3), mn.BatchNorm(), mn.Conv2d(16, 3), mn.Flatten(), mn.Dense(2))
    x = np.random.default_rng(0).standard_normal((4, 8, 8, 16))
    found = []
    for broken in (False, True):
        if broken:
            monkeypatch.setitem(sys.modules, "minintk.fast.numba_loops", None)
            monkeypatch.setattr(numba_here, "numba_is_here", lambda: True)
            numba_here.loops.cache_clear()
            with pytest.warns(RuntimeWarning, match="does not load"):
                assert numba_here.loops() is None
        with small_is_large():
            net = mn.Network(spec, x.shape[1:])
            f, J = net.linearize(net.init(np.random.default_rng(1)), x)
            found.append([f, J.vjp(np.ones_like(f))])
    numba_here.loops.cache_clear()
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * np.abs(a).max())


def test_numba_may_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NUMBA_DISABLE_JIT=1, which debuggers and coverage need, Numba counts as missing."""
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert not numba_here.numba_is_here.__wrapped__()


# ------------------------------------------------------------------- the laws of convolutions, by both ways


ROWS = mn.Conv2d(2, 3, b_std=0.3), mn.Conv2d(3, (1, 2), stride=(2, 1), padding="circular")


@pytest.mark.parametrize(("layer", "B"), thinned(product(ROWS, (1, 2, 6)), every=2))
def test_any_number_of_windows_in_a_row_of_patches(
    monkeypatch: pytest.MonkeyPatch, layer: mn.spec.Layer, B: int
) -> None:
    monkeypatch.setattr(patches.Patches, "cost", property(lambda self: abs(self.B - B)))
    testing.check_layer(layer, (3, 6, 2))


@pytest.mark.parametrize("cheap", ["gradients", "pairs"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(case=cases(convolutional()))
def test_both_ways_to_the_kernel(monkeypatch: pytest.MonkeyPatch, cheap: str, case: Case) -> None:
    way = {"gradients": lambda *a: False, "pairs": lambda *a: True}[cheap]
    monkeypatch.setattr(conv_gram, "pairs_are_cheaper", way)
    testing.check_gram(case.net, case.theta, case.x, case.rng)
    testing.check_blocks(case.net, case.theta, case.x, case.rng)
