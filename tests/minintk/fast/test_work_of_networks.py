"""Count the operations of networks and kernels at default thresholds, to detect fast paths that are no longer used."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import minintk as mn
from minintk import threads
from minintk.fast import conv_gram, dense, split_batch, split_outputs
from minintk.fast.accelerate import shut
from minintk.fast.patches import Patches
from minintk.large import least_squares
from minintk.layers.contract import Contraction
from minintk.models.jacobian import Jacobian, NetworkJacobian
from minintk.thresholds import THRESHOLDS
from minintk.training import train
from tests.kit.counting import counted

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 2)


def multiplied(a: Array, b: Array, out: Array) -> int:
    """Return the number of multiplications in a matrix product."""
    return int(np.prod(out.shape) * a.shape[-1])


def lenet(channels: int = 6) -> mn.Network:
    layers = [mn.Conv2d(channels, 5), mn.ReLU(), mn.MaxPool(2), mn.Conv2d(16, 5), mn.ReLU(), mn.MaxPool(2)]
    return mn.Network(mn.Sequential(*layers, mn.Flatten(), mn.Dense(10)), (28, 28, 1))


# ------------------------------------------------------------------------------------------ split over the cores


def test_a_large_product_is_split_and_nothing_is_computed_twice() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(1024), mn.ReLU(), mn.Dense(1024), mn.ReLU(), mn.Dense(3)), (600,))
    theta, x = net.init(RNG(0), dtype=np.float32), RNG(1).normal(size=(256, 600)).astype(np.float32)
    with counted(dense, "matmul_into", multiplied) as there:
        f, J = net.linearize(theta, x)
    with counted(dense, "matmul_into", multiplied) as back:
        J.vjp(np.ones_like(f))
    first, second = 256 * 600 * 1024, 256 * 1024 * 1024
    assert sorted(there) == sorted([first // 8] * 8 + [second // 16] * 16)
    assert sorted(back) == sorted(
        [first // 8] * 8 + [second // 16] * 32 + [256 * 1024 * 3]
    )  # layer 1: dW; layer 2: dW and dx; layer 3: dW
    with counted(dense, "matmul_into", multiplied) as busy:  # the same pieces even if other cores are busy
        threads.alone(net, theta, x)
    assert busy == there


def test_a_batch_of_images_goes_through_the_layers_in_shares() -> None:
    net = lenet()
    front: Any = net.sweeps.layers[0]  # type: ignore[attr-defined]
    assert isinstance(front, split_batch.SplitBatch)
    x, w = np.zeros((64, 28, 28, 1)), net.layout.unpack(net.init(RNG(0)))
    parts: Any = {N: front(w, np.zeros((N, 28, 28, 1)))[1] for N in (4, 64, 512)}
    counts = {N: len(J.parts) for N, J in parts.items()}
    assert counts == {4: 1, 64: 2, 512: 8}
    with counted(split_batch, "parallel", lambda work, items: len(items)) as shares:
        f, J = net.linearize(net.init(RNG(0)), x)
        J.vjp(np.ones_like(f))
        J.jvp(np.ones(net.size))
    assert shares == [2, 2, 2]


def test_the_outputs_of_an_image_kernel_are_split() -> None:
    net = lenet()
    theta, x = net.init(RNG(0)), RNG(1).normal(size=(16, 28, 28, 1))
    with counted(split_outputs, "parallel", lambda work, items: [part.shape[0] for part in items]) as parts:
        mn.ntk(net, theta, x)
        mn.ntk_full(net, theta, x[:2])
    assert parts == [[5, 5], [10]]  # each part recomputes the Gram matrices of the inputs


# ----------------------------------------------------------------------------------------------- convolutions


def convolution(channels: int, kernel: int, shape: tuple[int, ...]) -> Any:
    """Return a bound convolution without padding."""
    layers = mn.Conv2d(channels, kernel, padding="valid"), mn.Flatten()
    return mn.Network(mn.Sequential(*layers), shape).layers.layers[0]


def test_patches_hold_several_windows_where_channels_are_few() -> None:
    """In a layer like LeNet's first, patches have fewer than half as many entries as with one window per row."""
    blocks = {}
    for name, (channels, kernel) in {"first": ((1, 6), 5), "wide": ((64, 64), 3)}.items():
        layer = convolution(channels[1], kernel, (16, 16, channels[0]))
        best = Patches.of(layer.windows, channels)
        one = Patches(layer.windows, channels)
        blocks[name] = best.B
        assert best.cost <= one.cost
        if name == "first":
            assert best.R * best.K < 0.5 * one.R * one.K
    assert blocks["first"] > 1
    assert blocks["wide"] <= 2


def test_patches_are_formed_some_images_at_a_time_and_once_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(THRESHOLDS, "compiled", 10**15)
    monkeypatch.setattr(THRESHOLDS, "patches_bytes", 2**19)  # less than the patches of a core's images
    net = lenet()
    theta, x = net.init(RNG(0)), RNG(1).normal(size=(200, 28, 28, 1))

    def read(self: Patches, x: Array, out: Array | None = None) -> tuple[int, int]:
        return x.shape[-4], x.shape[-4] * self.R * self.K * 8

    with counted(Patches, "read", read) as forwards:
        f, J = net.linearize(theta, x)
    with counted(Patches, "read", read) as backwards:
        J.vjp(np.ones_like(f))
    for reads, convolutions in ((forwards, 2), (backwards, 2)):
        assert sum(count for count, _ in reads) == 200 * convolutions
        assert max(size for _, size in reads) <= THRESHOLDS.patches_bytes


def test_a_gradient_in_x_is_gathered_where_that_takes_few_multiplications() -> None:
    """With padding, dx is computed by gathering; without padding, it is not.

    For 12 x 12 pixels without padding, gathering would need twice as many multiplications.
    """
    found = {}
    for padding in ("same", "valid"):
        layers = (mn.Conv2d(48, 3), mn.Conv2d(48, 7, padding=padding), mn.Flatten(), mn.Dense(2))
        net = mn.Network(mn.Sequential(*layers), (12, 12, 3))
        theta, x = net.init(RNG(0)), RNG(1).normal(size=(8, 12, 12, 3))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(THRESHOLDS, "compiled", 10**15)
            f, J = net.linearize(theta, x)
            with counted(Patches, "add", lambda self, P, x: P.size) as added:
                J.vjp(np.ones_like(f))
        found[padding] = bool(added)
    assert found == {"same": False, "valid": True}


def test_a_convolution_goes_without_patches_where_numba_is_installed_and_the_work_large() -> None:
    pytest.importorskip("numba")
    net = mn.Network(mn.zoo.wide_resnet(10, 1, norm=None), (32, 32, 3))
    theta, x = net.init(RNG(0), dtype=np.float32), RNG(1).normal(size=(32, 32, 32, 3)).astype(np.float32)
    with counted(Patches, "read", lambda self, x, out=None: self.channels) as large:
        f, J = net.linearize(theta, x)
        J.vjp(np.ones_like(f))
    assert (16, 16) not in large
    with counted(Patches, "read", lambda self, x, out=None: self.channels) as small:
        mn.Network(net.spec, (8, 8, 3)).linearize(theta, x[:1, :8, :8])
    assert (16, 16) in small  # so small a product does not load Numba


# ------------------------------------------------------------------------------------------------ kernels


def contracted(self: Any, u: Array, v: Array, g: Any) -> int:
    """Return the number of multiplications in a contraction that computes the trace over outputs."""
    return u.size * v.shape[-2] // (1 if u.ndim < 4 else u.shape[1])


@pytest.mark.parametrize(
    "model",
    ["network", "linearised", "centred", "images"],
)
def test_a_tangent_kernel_is_contracted_layer_by_layer(model: str) -> None:
    """A tangent kernel is computed without a sweep per output and example, and without a Jacobian."""
    net = mn.Network(mn.Sequential(mn.Dense(40), mn.ReLU(), mn.Dense(40), mn.ReLU(), mn.Dense(10)), (20,))
    net = lenet() if model == "images" else net
    theta, x = net.init(RNG(0)), RNG(1).normal(size=(6, *net.input_shape))
    chosen: Any = net
    if model == "linearised":
        chosen = mn.Linearized(net, theta)
    elif model == "centred":
        chosen = mn.Centred(net, theta, 2.0)
    with (
        counted(NetworkJacobian, "pull") as back,
        counted(NetworkJacobian, "push") as there,
        counted(Jacobian, "contract") as swept,
    ):
        k = mn.ntk(chosen, theta, x)
    assert (back, there, swept) == ([], [], [])
    J = net.jacobian(theta, x).dense().reshape((6, -1))
    np.testing.assert_allclose(k, (4 if model == "centred" else 1) * J @ J.T / 10, atol=1e-12 * float(k.max()))


def test_the_contractions_of_a_fully_connected_kernel() -> None:
    """A layer from K to n units costs at most N N (C n + K) multiplications. J J' from J would cost N N P C."""
    net = mn.Network(mn.Sequential(mn.Dense(64), mn.ReLU(), mn.Dense(64), mn.ReLU(), mn.Dense(10)), (20,))
    N = 12
    with counted(Contraction, "__call__", contracted) as products:
        mn.ntk(net, net.init(RNG(0)), RNG(1).normal(size=(N, 20)))
    assert len(products) <= 2 * 3
    assert sum(products) <= N * N * 10 * (64 + 64 + 10) + N * N * (20 + 64 + 64)
    assert sum(products) < N * N * net.size * 10 / 10


def test_of_a_kernel_in_blocks_one_half_is_computed() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(64), mn.ReLU(), mn.Dense(2)), (20,))
    theta, x = net.init(RNG(0)), RNG(1).normal(size=(64, 20))
    whole = mn.ntk(net, theta, x)
    with counted(NetworkJacobian, "contract", lambda a, b, kernel: a.outputs[0] * b.outputs[0]) as blocks:
        k = mn.ntk(net, theta, x, memory=64 * 64 * 8 + 60_000)
    np.testing.assert_allclose(k, whole, atol=1e-13)
    assert len(blocks) > 3
    assert sum(blocks) < 0.8 * 64 * 64


def gram_work(shape: tuple[int, int, int], channels: int, N: int, C: int) -> tuple[int, str]:
    """Return the number of convolutions contracted for a kernel, and the method used for the last one."""
    spec = mn.Sequential(mn.Conv2d(shape[2], 1), mn.ReLU(), mn.Conv2d(channels, 3), mn.Flatten(), mn.Dense(C))
    net = mn.Network(spec, shape)
    theta, x = net.init(RNG(0)), RNG(1).normal(size=(N, *shape))
    ways: list[str] = []
    with (
        counted(conv_gram, "by_pairs", lambda *a: ways.append("pairs")),
        counted(conv_gram, "by_gradients", lambda *a: ways.append("gradients")),
        counted(conv_gram, "pairs_are_cheaper") as asked,
        counted(NetworkJacobian, "pull") as swept,
    ):
        mn.ntk(net, theta, x)
    assert swept == []
    assert asked
    return len(ways), ways[0]  # the last convolution is processed first


def test_a_convolution_adds_to_the_kernel_by_the_cheaper_way() -> None:
    """Pairs of positions are used for few positions and many channels, and gradients per example for many positions.

    The choice follows the formulas for the two costs.
    """
    assert gram_work((2, 2, 32), 32, N=3, C=4)[1] == "pairs"
    assert gram_work((8, 8, 2), 3, N=3, C=4)[1] == "gradients"
    windows = Patches(convolution(3, 3, (5, 5, 2)).windows, (2, 3))
    for n, p, N, C in ((3, 9, 4, 2), (64, 9, 2, 4), (64, 2, 2, 4), (8, 4, 16, 10)):
        a = np.zeros((C, N, p, n))
        gradients, pairs = N * C * p * 18 * n + N * N * C * 18 * n, N * N * p * p * (18 + C * n)
        assert conv_gram.pairs_are_cheaper(windows, a, a, Contraction(full=False)) == (pairs < gradients)


def test_the_gradients_of_examples_go_some_channels_at_a_time() -> None:
    """A buffer is at most as large as one example's cotangents, or holds the gradients of a single channel."""
    net = mn.Network(mn.Sequential(mn.Conv2d(4, 1), mn.ReLU(), mn.Conv2d(24, 3), mn.Flatten(), mn.Dense(3)), (4, 4, 4))
    theta, x = net.init(RNG(0)), RNG(1).normal(size=(6, 4, 4, 4))
    with counted(conv_gram, "gradient_rows", lambda windows, x, u, compiled: (windows.K, u.shape[-1])) as rows:
        mn.ntk(net, theta, x)
    channels = [n for K, n in rows if K == 9 * 4]
    assert sum(channels) == 24
    assert max(channels) * 9 * 4 <= 16 * 24


# ------------------------------------------------------------------------------------------------- training


def test_members_of_an_ensemble_train_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small ensemble needs one sweep per step. Members of larger networks train in two slices or one at a time."""
    monkeypatch.setattr(train, "cores", lambda: 2)  # the real number is 1 if OMP_NUM_THREADS=1
    net = mn.Network(mn.Sequential(mn.Dense(16), mn.ReLU(), mn.Dense(1)), (4,))
    theta, x = net.init(RNG(0), ensemble=12), RNG(1).normal(size=(8, 4))
    with counted(mn.Network, "forward") as sweeps, counted(NetworkJacobian, "pull") as back:
        for _ in mn.train(net, theta, x, x[:, :1], steps=5, loss=mn.mse, optimizer=mn.SGD(lr=0.1)):
            pass
    assert len(back) == 5 + 3  # three to compare lr with the stability bound
    assert len(sweeps) <= 5 + 2
    assert train.member_slices(net, theta, 8) == [slice(0, 12)]
    large = mn.Network(mn.Sequential(mn.Dense(1000), mn.ReLU(), mn.Dense(1)), (1000,))
    parts = train.member_slices(large, np.broadcast_to(np.zeros(1), (4, large.size)), 8)
    assert parts == [slice(i, i + 1) for i in range(4)]
    middle = mn.Network(mn.Sequential(mn.Dense(100), mn.ReLU(), mn.Dense(1)), (1000,))
    parts = train.member_slices(middle, np.broadcast_to(np.zeros(1), (12, middle.size)), 8)
    assert parts == [slice(0, 6), slice(6, 12)]


def test_networks_that_are_made_are_fast() -> None:
    """Networks use fast layers by default: one chain for sweeps and one for kernels."""
    net = lenet()
    assert net.sweeps is not net.layers
    assert net.kernels is not net.layers
    with shut():
        plain = lenet()
    assert plain.sweeps is plain.kernels is plain.layers


# ------------------------------------------------------------------------------------------------- Cholesky


def test_a_matrix_is_factorised_in_its_own_memory() -> None:
    n = 600
    a = RNG(0).normal(size=(n, n))
    k = a @ a.T / n + np.eye(n)
    want = np.linalg.cholesky(k)
    least_squares.Factor(k[:4, :4].copy())  # imports on first use happen here
    tracemalloc.start()
    factor = least_squares.Factor(k)
    factor.solve(k[0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert factor.L is k
    np.testing.assert_allclose(np.tril(k), want, atol=1e-12)
    assert peak < k.nbytes / 20


def test_a_least_squares_solve_factorises_once() -> None:
    """A solve factorises its matrix once. The solution and its refinements need at most 20 triangular solves."""
    net = mn.Network(mn.Sequential(mn.Dense(64), mn.ReLU(), mn.Dense(1)), (20,))
    x = RNG(1).normal(size=(100, 20))
    with (
        counted(scipy.linalg, "cho_factor", lambda k, **how: k.shape) as factorised,
        counted(scipy.linalg, "solve_triangular") as solved,
        counted(np.linalg, "eigh") as spectra,
    ):
        mn.solve_gram(net, net.init(RNG(0)), x, x[:, :1], ridge=1e-3)
    assert factorised == [(100, 100)]
    assert 2 <= len(solved) <= 20
    assert spectra == []
