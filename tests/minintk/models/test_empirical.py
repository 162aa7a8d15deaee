"""Test empirical kernels: definitions, blocks, and memory bounds."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import minintk as mn

RNG = np.random.default_rng(0)
NET = mn.Network(mn.Sequential(mn.Dense(30, b_std=0.3), mn.ReLU(), mn.Dense(20), mn.Tanh(), mn.Dense(3)), (8,))
THETA = NET.init(RNG)
X1, X2 = RNG.standard_normal((17, 8)), RNG.standard_normal((6, 8))


def test_definitions() -> None:
    J1, J2 = (NET.linearize(THETA, x)[1].dense() for x in (X1, X2))
    full = np.einsum("ncp,mep->ncme", J1, J2)
    np.testing.assert_allclose(mn.ntk_full(NET, THETA, X1, X2), full, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(mn.ntk(NET, THETA, X1, X2), np.einsum("ncmc->nm", full) / 3, rtol=1e-11, atol=1e-13)
    f1, f2 = NET(THETA, X1), NET(THETA, X2)
    np.testing.assert_allclose(mn.nngp(NET, THETA, X1, X2), f1 @ f2.T / 3, rtol=1e-14)
    np.testing.assert_array_equal(mn.nngp(NET, THETA, X1), mn.nngp(NET, THETA, X1, X1))


def test_kernels_of_an_ensemble_are_its_members() -> None:
    theta = NET.init(RNG, ensemble=3)
    for kernel in (mn.ntk, mn.ntk_full, mn.nngp):
        k = kernel(NET, theta, X1, X2)
        for e in range(3):
            np.testing.assert_allclose(k[e], kernel(NET, theta[e], X1, X2), rtol=1e-11, atol=1e-13)


def block_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each later linearisation appends its number of examples."""
    sizes: list[int] = []
    jacobian = mn.Network.jacobian

    def spy(self: mn.Network, theta: Any, x: Any) -> Any:
        sizes.append(len(x))
        return jacobian(self, theta, x)

    monkeypatch.setattr(mn.Network, "jacobian", spy)
    return sizes


@pytest.mark.parametrize("kernel", [mn.ntk, mn.ntk_full])
@pytest.mark.parametrize("x2", [None, X2])
def test_a_smaller_bound_means_smaller_blocks_and_the_same_kernel(
    kernel: Any, x2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = kernel(NET, THETA, X1, x2)
    sizes = block_sizes(monkeypatch)
    seen = set()
    for memory in (2**k for k in range(20, 12, -1)):
        del sizes[:]
        try:
            k = kernel(NET, THETA, X1, x2, memory=memory)
        except MemoryError:
            break
        seen.add(max(sizes))
        np.testing.assert_allclose(k, whole, rtol=1e-12, atol=1e-13)
        if x2 is None:
            assert np.array_equal(k, np.moveaxis(k, list(range(k.ndim // 2)), list(range(k.ndim // 2, k.ndim))))
    assert len(seen) >= 3, seen


@pytest.mark.parametrize("kernel", [mn.ntk, mn.ntk_full])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_bound_is_kept(kernel: Any, dtype: Any) -> None:
    """Peak allocations stay within the bound plus the bytes of theta. Too small a bound raises MemoryError."""
    net = mn.Network(mn.Sequential(mn.Dense(64), mn.ReLU(), mn.Dense(64), mn.ReLU(), mn.Dense(4)), (64,))
    theta = net.init(np.random.default_rng(0), dtype=dtype)
    x = np.random.default_rng(1).standard_normal((60, 64)).astype(dtype)
    bounds = 2 ** np.arange(23, 15, -2)
    kept = []
    for memory in bounds:
        peaks = []
        for _ in range(3):  # the first calls fill Python's free lists
            tracemalloc.start()
            try:
                kernel(net, theta, x, memory=int(memory))
            except MemoryError:
                break
            finally:
                peaks.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
        else:
            kept.append(int(memory))
            assert min(peaks) <= memory + theta.nbytes, (memory, peaks)
    assert len(kept) >= 2


def test_a_kernel_that_cannot_fit_is_refused_at_once() -> None:
    with pytest.raises(
        MemoryError, match=r"needs at least .* GiB .* the bound is .* GiB: pass fewer examples or a larger memory="
    ):
        mn.ntk_full(NET, THETA, X1, memory=1000)


def test_available_memory_is_the_default_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mn.models.empirical, "available_memory", lambda xp: 1000)
    with pytest.raises(MemoryError):
        mn.ntk(NET, THETA, X1)


def test_examples_of_the_wrong_shape() -> None:
    with pytest.raises(ValueError, match=r"x expects shape \(N, 8\), got \(6, 7\)"):
        mn.ntk(NET, THETA, X1, X2[:, :7])
    with pytest.raises(TypeError, match="one dtype"):
        mn.ntk_full(NET, THETA, X1, X2.astype(np.float32))
